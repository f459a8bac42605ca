import gzip
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import time

import pandas as pd
import pyterrier as pt
import pytest
from typer.testing import CliRunner

from pyterrier_debias.core.files import MANIFEST
from pyterrier_debias.gender.audit import GenderBias
from pyterrier_debias.gender.data.query_gender import GenderClassifier
from pyterrier_debias.report import inputs, perform
from pyterrier_debias.report.cli import app
from tests import tiny_models
from tests.biases import Made
from tests.report import toy
from tests.report.toy import QIDS

# What the pictures show is looked at by test_report.py and test_plots.py.
pytestmark = pytest.mark.usefixtures("pictures_small")

needs_pisa = pytest.mark.skipif(importlib.util.find_spec("pyterrier_pisa") is None, reason="PISA is not installed")


@pytest.fixture(autouse=True)
def toy_bias(monkeypatch):
    """The command line finds biases by name; here it finds one whose figures are known."""
    monkeypatch.setattr(inputs, "BIASES", {"order": ("tests.report.toy", "Order")})


@pytest.fixture
def folder(tmp_path):
    """The toy collection as files."""
    place = tmp_path / "toy"
    toy.write_files(place)
    return place


def trec(rows=None):
    rows = rows or [(q, f"{q}-{kind}", score) for q in QIDS for kind, score in (("good", 2.0), ("bad", 1.0))]
    return "".join(f"{q} Q0 {d} 1 {s} tag\n" for q, d, s in rows)


def call(*arguments):
    """Exit code, output, error output."""
    result = CliRunner().invoke(app, ["audit", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def refused(*arguments):
    """The one line that a call with bad input prints."""
    code, out, err = call(*arguments)
    assert (code, out) == (2, ""), (code, out, err)
    lines = err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("pyterrier-debias: ")
    return lines[0].removeprefix("pyterrier-debias: ")


def test_a_folder_is_audited_and_the_files_are_written(folder, tmp_path):
    code, out, err = call("--dataset", folder, "--model", "none", "--out", tmp_path / "results", "--full")
    assert code == 0
    assert re.search(r"BM25\s+RR@10\s+original.*\s+\*\s+RR@10\s+reversed - original\s+-0\.5000\s+\[-0\.500, -0\.500\]\s+6", out)
    assert f"Written to {tmp_path / 'results'}" in out
    assert err == ""
    assert {f.name for f in (tmp_path / "results").iterdir()} == {
        MANIFEST, "audit.json", "findings.csv", "per_query.csv", "index.html", "order-change.png",
    }  # fmt: skip
    settings = json.loads((tmp_path / "results" / "audit.json").read_text())["settings"]
    assert settings["dataset"] == "toy" and settings["systems"] == ["BM25"] and settings["biases"] == ["order"]


def test_a_screen_is_printed_and_where_the_rest_is(folder, tmp_path):
    code, out, _ = call("--dataset", folder, "--model", "none")
    assert code == 0 and len(out.splitlines()) <= 40
    assert out.startswith("Bias audit of BM25 on toy: 6 judged topics")
    assert "ORDER  Do results show the bias 'order'?\n  BM25  Yes: RR@10 -0.500 [-0.500, -0.500]." in out
    assert out.endswith("\nFor every figure, use --full; for tables and a page, use --out FOLDER\n")
    code, out, _ = call("--dataset", folder, "--model", "none", "--out", tmp_path / "results")
    assert out.endswith(f"\n\nWritten to {tmp_path / 'results'}: open {tmp_path / 'results' / 'index.html'}\n")
    assert "reversed - original" not in out


def test_a_model_reranks_the_run(folder, tmp_path):
    model = tiny_models.build_sentence_transformer(tmp_path / "my-model")
    code, out, _ = call("--dataset", folder, "--model", model, "--baseline", "BM25", "--full", "--out", tmp_path / "results")
    assert code == 0
    assert re.search(r"BM25 >> my-model\n\s+RR@10\s+original", out)
    settings = json.loads((tmp_path / "results" / "audit.json").read_text())["settings"]
    assert settings["rankers"] == {"BM25 >> my-model": "BiEncoder(ranker)"}  # a folder of this machine is not told
    assert "reversed - original, vs BM25" in out


def test_finished_biases_are_kept_and_other_folders_refused(folder, tmp_path):
    base = ["--dataset", folder, "--model", "none", "--checkpoint"]
    first = call(*base, tmp_path / "kept")
    assert first[0] == 0 and len(list((tmp_path / "kept").glob("bias-order-*.json"))) == 1
    assert call(*base, tmp_path / "kept") == first
    assert "depth is 100 in the folder and 9 now" in refused(*base, tmp_path / "kept", "--depth", 9)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    assert "is not empty and holds no checkpoint" in refused(*base, tmp_path / "mine")


def test_runs_take_the_retrievers_place(folder, tmp_path):
    with gzip.open(tmp_path / "second.trec.gz", "wt") as file:
        file.write(trec([(q, f"{q}-bad", 2.0) for q in QIDS] + [(q, f"{q}-good", 1.0) for q in QIDS]))
    (tmp_path / "first.trec").write_text(trec())
    code, out, _ = call(
        "--dataset", folder, "--run", tmp_path / "first.trec", "--run", f"other={tmp_path / 'second.trec.gz'}", "--model", "none",
        "--full",
    )  # fmt: skip
    assert code == 0
    assert re.search(r"first\s+RR@10\s+original\s+1\.0000", out)
    assert re.search(r"other\s+RR@10\s+original\s+0\.5000", out)
    assert "BM25" not in out


def test_tied_scores_can_follow_the_ranks_of_a_file(folder, tmp_path):
    """Every query has its relevant document first by docno (descending), and second by the file's ranks."""
    rows = "".join(f"{q} Q0 {q}-{kind} {rank} 1.5 t\n" for q in QIDS for rank, kind in enumerate(("bad", "good"), start=1))
    (tmp_path / "tied.trec").write_text(rows)
    said = ["--dataset", folder, "--run", tmp_path / "tied.trec", "--model", "none", "--full"]
    assert re.search(r"tied\s+RR@10\s+original\s+1\.0000", call(*said)[1])
    code, out, _ = call(*said, "--ties", "rank")
    assert code == 0 and re.search(r"tied\s+RR@10\s+original\s+0\.5000", out)
    assert "Tied scores of runs are ordered by the ranks in their files." in out
    (folder / "runs" / "bm25.trec").write_text(rows)
    for order, value in (("docno", "1.0000"), ("rank", "0.5000")):
        out = call("--dataset", folder, "--model", "none", "--full", "--ties", order)[1]
        assert re.search(rf"BM25\s+RR@10\s+original\s+{value}", out)
    assert "ties='file' is not known; use one of 'docno', 'rank'" in refused(*said, "--ties", "file")
    assert "give --run FILE" in refused("--model", "none", "--ties", "rank")


def test_a_saved_classifier_tells_neutral_queries(folder, tmp_path, monkeypatch):
    """The option reaches the bias as it was saved; what is no classifier is refused before anything runs."""
    given = []

    class Asked(GenderBias):
        def __init__(self, **options):
            super().__init__(**options)
            given.append(self.classifier)

        def needs(self, system, dataset):
            return None

        def examine(self, context):
            told = ", ".join(self.neutral_qids(context.topics))
            yield self.finding(context.systems[0].name, "neutral", "all", 1.0, f"neutral: {told or 'none'}.")

        def figures(self, context):
            return ()

    encoder = tiny_models.build_sentence_transformer(tmp_path / "encoder")
    queries = ["a blue river", "the old king works"] * 3
    (folder / "topics.tsv").write_text("".join(f"{qid}\t{query}\n" for qid, query in zip(QIDS, queries)))
    fitted = GenderClassifier(str(encoder), strength=1e6).fit(queries, ["neutral", "male"] * 3)
    fitted.save(tmp_path / "classifier")
    monkeypatch.setattr(inputs, "BIASES", {"gender": ("pyterrier_debias.gender.audit", "GenderBias")})
    monkeypatch.setattr(perform, "GenderBias", Asked)
    said = ["--dataset", folder, "--model", "none", "--gender-classifier"]
    code, _, err = call(*said, tmp_path / "classifier", "--out", tmp_path / "out")
    assert code == 0, err
    assert given == [fitted]
    assert pd.read_csv(tmp_path / "out" / "findings.csv")["text"].tolist() == [f"BM25: neutral: {', '.join(QIDS[::2])}."]
    (tmp_path / "empty").mkdir()
    for place in ("empty", "nowhere"):
        assert "holds no saved classifier" in refused(*said, tmp_path / place) and place in refused(*said, tmp_path / place)
    GenderClassifier(str(encoder)).fit(queries, ["male", "female"] * 3).save(tmp_path / "two")
    assert "cannot recognise neutral queries" in refused(*said, tmp_path / "two")
    monkeypatch.setattr(inputs, "BIASES", {"order": ("tests.report.toy", "Order")})
    assert "is for the gender bias; add gender to --biases" in refused(*said, tmp_path / "classifier")


def test_a_defect_in_a_bias_is_told_apart_from_bad_input(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(toy, "Order", toy.Broken)
    code, out, err = call("--dataset", folder, "--model", "none", "--out", tmp_path / "results")
    assert code == 1
    assert "Not examined: an internal error (RuntimeError: the bias fell down)." in out
    assert "Traceback" in err
    assert (tmp_path / "results" / "index.html").is_file()


def test_a_folder_named_as_a_file_is_refused_before_anything_runs(folder, tmp_path):
    told = refused("--dataset", folder, "--model", "none", "--out", tmp_path / "report.html")
    assert "report.html looks like a file name, but an audit is saved as a folder" in told


def test_what_the_dataset_lacks(folder, tmp_path):
    assert "no such folder" in refused("--dataset", tmp_path / "nowhere")
    assert "no split 'dl99'" in refused("--dataset", folder, "--split", "dl99")
    (folder / "qrels.txt").write_text("other 0 q1-good 1\n")
    assert "no qid is in both" in refused("--dataset", folder, "--model", "none")
    (folder / "qrels.txt").write_text("q1 0 q1-good\n")
    assert "qrels.txt:1:" in refused("--dataset", folder, "--model", "none")
    (folder / "qrels.txt").unlink()
    assert "holds no judgements" in refused("--dataset", folder, "--model", "none")


def test_files_that_are_not_utf8(folder):
    (folder / "topics.tsv").write_bytes(b"q1\tcaf\xe9\n")
    assert "UTF-8" in refused("--dataset", folder, "--model", "none")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        (trec([("q1", "q1-good", 2.0), ("q1", "q1-good", 1.0)]), "mine.trec:2:"),
        (trec([("q1", "q1-good", "nan")]), "NaN"),
        ("q1 Q0 d1 1\n", "6 fields were expected"),
        (trec([("other", "q1-good", 2.0)]), "no qid is in both"),
    ],
)
def test_bad_runs(folder, tmp_path, content, message):
    path = tmp_path / "mine.trec"
    path.write_text(content)
    assert message in refused("--dataset", folder, "--run", path, "--model", "none", "--out", tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_bad_run_options(folder, tmp_path):
    (tmp_path / "a.trec").write_text(trec())
    assert "nowhere.trec" in refused("--dataset", folder, "--run", tmp_path / "nowhere.trec")
    twice = ["--run", f"a={tmp_path / 'a.trec'}"] * 2
    assert "two runs are named 'a'" in refused("--dataset", folder, "--model", "none", *twice)
    unnamed = ["--run", f"={tmp_path / 'a.trec'}"]
    assert "has an empty name; give NAME=FILE" in refused("--dataset", folder, "--model", "none", *unnamed)


def test_models_that_are_not_there(folder, tmp_path):
    assert "does not exist" in refused("--dataset", folder, "--model", tmp_path / "nowhere")
    assert "neither a folder nor" in refused("--dataset", folder, "--model", "no-such/model")
    (tmp_path / "empty").mkdir()
    assert "holds no config.json" in refused("--dataset", folder, "--model", tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text("{")
    assert "damaged" in refused("--dataset", folder, "--model", tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text('{"architectures": ["BertModel"], "model_type": "bert"}')
    assert "its files do not show its kind" in refused("--dataset", folder, "--model", tmp_path / "empty")
    assert "kind='tree' is not known" in refused("--dataset", folder, "--model", tmp_path / "empty", "--model-kind", "tree")
    assert "rotations=1 must be a whole number of at least 2" in refused("--dataset", folder, "--rotations", "1")
    assert "named twice" in refused("--dataset", folder, *["--model", f"cross:{tmp_path / 'empty'}"] * 2)


def test_a_model_whose_weights_are_damaged_is_found_out_before_the_audit(folder, tmp_path):
    model = tiny_models.build_sentence_transformer(tmp_path / "my-model")
    weights = next((tmp_path / "my-model").rglob("model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:1000])
    line = refused("--dataset", folder, "--model", model, "--out", tmp_path / "results")
    assert "my-model" in line
    assert not (tmp_path / "results").exists()


def test_settings_that_no_audit_can_have(folder):
    base = ["--dataset", folder, "--model", "none"]
    assert "bias 'astrology' is not known; use 'all' or some of order" in refused(*base, "--biases", "order,astrology")
    assert "depth is 0" in refused(*base, "--depth", 0)
    assert "draws is 0" in refused(*base, "--draws", 0)
    assert "topics is -1" in refused(*base, "--topics", -1)
    assert "correction='hope'" in refused(*base, "--correction", "hope")
    assert "baseline 'DPH' is not one of the systems; use one of BM25" in refused(*base, "--baseline", "DPH")
    assert "dtype='float8'" in refused(*base, "--dtype", "float8")
    assert "device 'abacus' is not known" in refused(*base, "--device", "abacus")
    assert "device 'cuda:77' is not available" in refused(*base, "--device", "cuda:77")


def test_an_out_folder_that_cannot_be_used(folder, tmp_path):
    base = ["--dataset", folder, "--model", "none", "--out"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    (tmp_path / "mine" / "audit.json").write_text("{}")
    assert "did not write (audit.json)" in refused(*base, tmp_path / "mine")
    assert "did not write (audit.json)" in refused(*base, tmp_path / "mine", "--overwrite")
    assert "exists already" in refused(*base, tmp_path / "mine" / "thesis.tex")
    assert "cannot be written" in refused(*base, tmp_path / "mine" / "thesis.tex" / "below")
    assert "is inside --out" in refused(*base, tmp_path / "new", "--checkpoint", tmp_path / "new" / "kept")
    assert not (tmp_path / "new").exists()
    assert "name that folder with --out" in refused("--dataset", folder, "--model", "none", "--overwrite")
    assert call(*base, tmp_path / "results")[0] == 0
    assert "--overwrite" in refused(*base, tmp_path / "results")
    (tmp_path / "results" / "mine.png").write_text("mine")
    assert call(*base, tmp_path / "results", "--overwrite")[0] == 0
    assert (tmp_path / "results" / "mine.png").read_text() == "mine"
    (tmp_path / "results" / "index.html").write_text("mine")
    assert "holds index.html, which has changed" in refused(*base, tmp_path / "results", "--overwrite")
    assert (tmp_path / "results" / "index.html").read_text() == "mine"


def test_nothing_is_left_behind_by_what_was_refused(folder, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    refused("--dataset", folder, "--model", "none", "--baseline", "DPH", "--out", tmp_path / "new" / "results")
    assert sorted(tmp_path.rglob("*")) == before


def test_help_is_the_manual_and_answers_at_once():
    started = time.perf_counter()
    code = "import sys; sys.argv = ['x', 'audit', '--help']\n"
    code += "import atexit; atexit.register(lambda: print('LOADED', *(m for m in sys.modules if '.' not in m)))\n"
    code += "from pyterrier_debias.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - started < 5
    text, loaded = done.stdout.split("LOADED")
    assert not {"torch", "transformers", "pandas", "pyterrier", "matplotlib", "scipy"} & set(loaded.split())
    assert "Columns of the tables that --full prints:" in text
    for needed in ("Examples:", "Exit codes:", "--dataset", "--model", "--run", "--out", "p corr."):
        assert needed in text


def test_the_module_can_be_run_and_knows_its_version():
    done = subprocess.run([sys.executable, "-m", "pyterrier_debias", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"pyterrier-debias {__import__('pyterrier_debias').__version__}"


@needs_pisa
def test_pisa_indexes_a_collection_without_runs_and_says_nothing(folder, capfd):
    (folder / "runs" / "bm25.trec").unlink()
    code, out, err = call("--dataset", folder, "--model", "none", "--full")
    assert code == 0
    assert "BM25 is PISA's" in out and re.search(r"BM25\s+RR@10\s+original", out)
    assert capfd.readouterr() == ("", "")
    assert err == ""


def test_without_pisa_a_collection_needs_a_run(folder, monkeypatch):
    from pyterrier_debias.report import first_stage

    monkeypatch.setattr(first_stage, "pisa_installed", lambda: False)
    code, out, _ = call("--dataset", folder, "--model", "none")
    assert code == 0 and "because PISA is not installed" in " ".join(out.split())
    (folder / "runs" / "bm25.trec").unlink()
    assert "PISA is not installed" in refused("--dataset", folder, "--model", "none")


def test_trec_dl_scores_what_was_published(shared_data, monkeypatch, tmp_path):
    from pyterrier_debias import Finding
    from pyterrier_debias.core.evaluation import judged_qids, per_query

    def run(context):
        qids = judged_qids(context.topics, context.qrels)
        means = [per_query(context.results(s), context.qrels, ["nDCG@10"], qids).mean().item() for s in context.systems]
        return [Finding(s.name, "quality", "nDCG@10", "all", mean) for s, mean in zip(context.systems, means)]

    monkeypatch.setattr(toy, "Order", lambda: Made("quality", run))
    for split, published in (("dl19", 0.5058), ("dl20", 0.4796)):
        call("--dataset", shared_data / "msmarco_trec_dl", "--split", split, "--model", "none", "--out", tmp_path / split)
        assert pd.read_csv(tmp_path / split / "findings.csv")["value"].item() == pytest.approx(published, abs=5e-5)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_without_permission(folder, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert "cannot be written" in refused("--dataset", folder, "--model", "none", "--out", locked / "results")


@pytest.fixture
def index(tmp_path):
    """What looks like a Terrier index, for what is checked before Java starts."""
    place = tmp_path / "index"
    place.mkdir()
    (place / "data.properties").write_text("num.Documents=3\n")
    return place


def test_options_of_models_need_a_model(folder):
    for model in ((), ("--model", "none")):
        told = refused("--dataset", folder, "--model-kind", "cross", *model)
        assert told == "--model-kind cross needs --model; name the model too"
    for option, value in (("rotations", 2), ("workers", 2), ("dtype", "bfloat16")):
        assert f"--{option} {value} applies to models" in refused("--dataset", folder, f"--{option}", value, "--model", "none")


def test_options_of_terrier_are_checked_before_java_starts(folder, index, tmp_path):
    for name, value in (("wmodel", "BM25"), ("queries", "x.tsv"), ("qrels", "x.txt")):
        assert refused(f"--{name}", value) == f"--{name} needs --terrier INDEX; name the index too"
    for name, lacks in (("queries", "qrels"), ("qrels", "queries")):  # those of the planted collection do not fit
        told = refused("--terrier", index, f"--{name}", tmp_path / "x.tsv")
        assert told.startswith(f"--{name} needs the ") and f"give --{lacks} FILE, or the --dataset that has them" in told
    assert "both provide the first stage" in refused("--terrier", index, "--run", folder / "runs" / "bm25.trec")
    assert "--wmodel DPH is named twice" in refused("--terrier", index, "--wmodel", "DPH", "--wmodel", "DPH")
    assert f"--terrier {folder}: there is no Terrier index" in refused("--terrier", folder)
    for run in (index, f"mine={index}"):
        told = f"run {index} is a folder with a Terrier index, not a run; give it as --terrier {index}"
        assert refused("--run", run, "--dataset", folder) == told
    assert "is a Terrier index, which has no topics or judgements" in refused("--dataset", index)
    # Files are read before Java starts.
    assert "missing.tsv" in refused("--terrier", index, "--queries", tmp_path / "missing.tsv", "--dataset", folder)
    assert not (tmp_path / "out").exists()


def test_java_that_cannot_be_started_is_told(folder, index, monkeypatch):
    def no_java(_):
        raise RuntimeError("Unable to find JAVA_HOME\nmore")

    monkeypatch.setattr(pt.java, "started", lambda: False)
    monkeypatch.setattr(pt.terrier.TerrierIndex, "coerce", no_java)
    told = refused("--terrier", index, "--dataset", folder, "--model", "none")
    assert "Java cannot be started (RuntimeError: Unable to find JAVA_HOME more); install Java 11 or newer" in told


def test_letters_that_the_terminal_lacks_are_shown_by_their_numbers(folder, tmp_path):
    (tmp_path / "mine.trec").write_text(trec())
    arguments = ["audit", "--dataset", folder, "--run", f"größe→={tmp_path / 'mine.trec'}", "--model", "none", "--full"]
    found = CliRunner(charset="latin-1").invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert found.exit_code == 0 and "größe\\u2192" in found.stdout
