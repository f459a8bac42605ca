"""Nothing that the package did not write is replaced or removed by anything in it that writes: a table of all writers."""

from __future__ import annotations

import ast
import copy
import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from typer.testing import CliRunner

import pyterrier_debias
from pyterrier_debias import (
    TK,
    BiEncoder,
    CrossEncoder,
    GenderClassifier,
    InputError,
    MultiVector,
    SparseEncoder,
    T5Reranker,
    audit,
)
from pyterrier_debias.core import plots
from pyterrier_debias.core.files import MANIFEST, entries
from pyterrier_debias.gender.data.balanced_pairs import BalancedPairs, save_pairs
from pyterrier_debias.pooling.data.relabel import RelabelReranker
from pyterrier_debias.pooling.training.cet import CETReranker
from pyterrier_debias.position.formulas.mats import MATSAccumulator
from pyterrier_debias.position.measures.mats_probe import MATSProbe, plot_ats
from pyterrier_debias.rankers.base import InMemory
from pyterrier_debias.rankers.postings import Postings
from pyterrier_debias.rankers.vectors import Vectors
from pyterrier_debias.report import inputs
from pyterrier_debias.report.cli import app
from pyterrier_debias.report.gate import read_audit
from tests.gender.letters import Letters, annotated
from tests.gender.stereotypes import labelled
from tests.pooling.judge import knows, pooled
from tests.pooling.tastes import CORRECTIONS, small_collection
from tests.position.word_vectors import accumulated, collection
from tests.report import toy
from tests.training.toy import candidates, qrels, training

PACKAGE = Path(pyterrier_debias.__file__).parent

#: Files of other programs, by the names that this package's own files have, and by others.
STRANGERS = {
    name: f"{name} of somebody else".encode()
    for name in (
        ".git/config",
        "README.md",
        "arm.json",
        "audit.json",
        "checkpoint-1/pyterrier_debias.json",
        "checkpoint-500/model.pt",
        "checkpoint-best/last.ckpt",
        "config.json",
        "docnos.npy",
        "encoder/config.json",
        "findings.csv",
        "index.html",
        "meta.json",
        "model.safetensors",
        "order-change.png",
        "pyterrier_debias_stage.json",
        "pyterrier_debias_training.json",
        "ranker/model.safetensors",
        "scores-mine.npz",
        "query_gender.json",
        "pyterrier_debias_relabelled.csv",
        "selection/evidence.json",
        "selection/mine.txt",
        "tokenizer.json",
        "vectors.npy",
        "words.json",
        "x-a.png",
    )
}
#: Those that no writer has a file of the same name as.
BESIDE = (".git/config", "checkpoint-500/model.pt", "checkpoint-best/last.ckpt", "selection/mine.txt", "x-a.png")


def put(folder, names=tuple(STRANGERS)):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(STRANGERS[name])
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "checkpoint-7").mkdir(exist_ok=True)


def files(folder):
    """Path to content, for every file; empty folders too."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {
        name: path.read_bytes() if path.is_file() else b""
        for name, path in found.items()
        if path.is_file() or not any(path.iterdir())
    }


def spelled(texts):
    """A vector of each word: how often it has each vowel, and a constant."""
    for text in texts:
        yield text.split(), np.array([[*map(word.count, "aeiou"), 1] for word in text.split()], dtype=float)


class Made:
    """What is written, each made when it is first asked for."""

    def __init__(self, tiny):
        self.tiny = tiny

    @cached_property
    def rankers(self):
        tiny = self.tiny
        return {
            "CrossEncoder": CrossEncoder(tiny()),
            "CrossEncoder(mean)": CrossEncoder(tiny(labels=None), head="mean"),
            "BiEncoder": BiEncoder(tiny("build_sentence_transformer")),
            "BiEncoder(adore)": BiEncoder.of(
                "adore",
                tiny("build_published", name="adore"),
                documents_by=BiEncoder.of("star", tiny("build_published", name="star")),
            ),
            "MultiVector": MultiVector(tiny("build_multi_vector")),
            "SparseEncoder": SparseEncoder(tiny("build_sparse")),
            "T5Reranker": T5Reranker(tiny("build_t5")),
            "TK": TK.from_embeddings(tiny(labels=None), config={"num_hidden_layers": 1}),
        }

    def fitted(self, kind, judgements, *options, **more):
        small = training(max_steps=1, batch_size=8)
        return kind(self.rankers["CrossEncoder"], *options, training=small, **more).fit(candidates(), judgements)

    @cached_property
    def relabelled(self):
        return self.fitted(RelabelReranker, pooled(), knows)

    @cached_property
    def coupled(self):
        return self.fitted(CETReranker, qrels(), selection="lexical")

    @cached_property
    def coupled_rankers(self):
        return self.fitted(CETReranker, qrels(), selection="same")

    @cached_property
    def classifier(self):
        return GenderClassifier(Letters()).fit(*annotated())

    @cached_property
    def sums(self):
        return accumulated(*collection())

    @cached_property
    def result(self):
        dataset = toy.collection()
        return audit({"BM25": toy.systems(dataset)["BM25"]}, dataset, biases=[toy.ORDER])

    @cached_property
    def pairs(self):
        return BalancedPairs()(labelled())

    @cached_property
    def ats(self):
        return {"spelled": MATSProbe(spelled).result(candidates()[["docno", "text"]].drop_duplicates("docno"))}

    @cached_property
    def hidden(self):
        return small_collection()


@pytest.fixture(scope="module")
def made(tiny):
    return Made(tiny)


@pytest.fixture(autouse=True)
def toy_bias(monkeypatch, caplog, pictures_small):
    caplog.set_level("ERROR")  # fresh heads announce themselves
    monkeypatch.setattr(inputs, "BIASES", {"order": ("tests.report.toy", "Order")})


@dataclass(frozen=True)
class Writer:
    """Something that writes.

    Attributes:
        modules: Where in the package that happens.
        write: Is given what was made, the folder and, for those that fill a folder, whether to overwrite.
    """

    modules: str
    write: Callable[..., object]


def command(made, folder, overwrite):
    options = ["--overwrite"] if overwrite else []
    data = folder.parent / "data"
    if not data.exists():
        toy.write_files(data)
    call = ["audit", "--dataset", str(data), "--model", "none", "--out", str(folder), *options]
    done = CliRunner().invoke(app, call, catch_exceptions=False)
    if done.exit_code != 0:
        raise InputError(done.stderr)


def saves(name):
    return lambda made, folder, overwrite: made.rankers[name].save(folder, overwrite=overwrite)


def postings(made, folder, overwrite):
    Postings.write(folder, [(["d1", "d2"], csr_matrix(np.eye(2, dtype=np.float32)))], overwrite=overwrite)


def vectors(made, folder, overwrite):
    Vectors.write(folder, [(["d1", "d2"], np.eye(2, dtype=np.float32))], overwrite=overwrite)


CORPUS = [{"docno": "d1", "text": "a king"}, {"docno": "d2", "text": "a queen"}]

FOLDERS = {
    "CrossEncoder.save": Writer("training/fitting rankers/cross_encoder", saves("CrossEncoder")),
    "CrossEncoder(mean).save": Writer("rankers/heads", saves("CrossEncoder(mean)")),
    "BiEncoder.save": Writer("rankers/dual_encoder", saves("BiEncoder")),
    "BiEncoder(adore).save": Writer("rankers/bi_encoder", saves("BiEncoder(adore)")),
    "MultiVector.save": Writer("", saves("MultiVector")),
    "SparseEncoder.save": Writer("rankers/dual_encoder", saves("SparseEncoder")),
    "T5Reranker.save": Writer("rankers/base rankers/t5", saves("T5Reranker")),
    "TK.save": Writer("rankers/tk", saves("TK")),
    "CETReranker.save": Writer(
        "rankers/trained_reranker pooling/training/cet",
        lambda made, folder, overwrite: made.coupled.save(folder, overwrite=overwrite),
    ),
    "CETReranker.save, two rankers": Writer(
        "", lambda made, folder, overwrite: made.coupled_rankers.save(folder, overwrite=overwrite)
    ),
    "RelabelReranker.save": Writer(
        "pooling/data/relabel", lambda made, folder, overwrite: made.relabelled.save(folder, overwrite=overwrite)
    ),
    "GenderClassifier.save": Writer(
        "gender/data/query_gender", lambda made, folder, overwrite: made.classifier.save(folder, overwrite=overwrite)
    ),
    "Vectors.write": Writer("rankers/vectors", vectors),
    "BiEncoder.retriever": Writer(
        "",
        lambda made, folder, overwrite: made.rankers["BiEncoder"].retriever(CORPUS, folder=folder, overwrite=overwrite),
    ),
    "Postings.write": Writer("rankers/postings", postings),
    "SparseEncoder.retriever": Writer(
        "",
        lambda made, folder, overwrite: made.rankers["SparseEncoder"].retriever(CORPUS, folder=folder, overwrite=overwrite),
    ),
    "MATSAccumulator.save": Writer(
        "position/formulas/mats", lambda made, folder, overwrite: made.sums.save(folder, overwrite=overwrite)
    ),
    "AuditResult.save": Writer("report/result", lambda made, folder, overwrite: made.result.save(folder, overwrite=overwrite)),
    "audit --out": Writer("report/perform", command),
}

RANKERS = ("CrossEncoder", "CrossEncoder(mean)", "BiEncoder", "MultiVector", "SparseEncoder", "T5Reranker", "TK")


def writes_into(name):
    return lambda made, folder: made.rankers[name].write(folder)


#: What fills a folder that save() gives it, and may be called with another one.
HOOKS = {
    **{f"{name}.write": writes_into(name) for name in RANKERS},
    "AuditResult.write_files": lambda made, folder: made.result.write_files(folder),
    "RelabelReranker.write_beside": lambda made, folder: made.relabelled.write_beside(folder),
    "CETReranker.write_beside": lambda made, folder: made.coupled.write_beside(folder),
    "EncoderHead.save_pretrained": lambda made, folder: made.rankers["CrossEncoder(mean)"].module.save_pretrained(folder),
}


def figure():
    import matplotlib.pyplot as plt

    return plt.figure()


#: What writes the one file that it is told to: a name, and the call.
FILES = {
    "new.png": Writer("core/plots", lambda made, path: plots.save(figure(), path)),
    "ats.png": Writer("position/measures/mats_probe", lambda made, path: plots.close(plot_ats(made.ats, path=path).figure)),
    "pairs.tsv": Writer("gender/data/balanced_pairs", lambda made, path: save_pairs(made.pairs, path)),
}


def fit(made, folder):
    source = made.rankers["CrossEncoder"]
    model = InMemory(copy.deepcopy(source.module), source.tokenizer)
    ranker = CrossEncoder(model, training=training(max_steps=4, evaluate_every=2, checkpoints=folder, resume=True))
    ranker.fit(candidates(), qrels())


def audited(made, folder):
    dataset = toy.collection()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pyterrier_debias.core.kept_scores._SECONDS", -1.0)  # scores are written at once
        audit(toy.systems(dataset), dataset, biases=[toy.ORDER], checkpoint=folder)


def compared(made, folder):
    hidden, train, test = made.hidden
    hidden.compare(CORRECTIONS, train, test, seeds=(0,), resamples=10, checkpoint=folder)


#: What keeps work in a folder to take it up again; whether it may stand beside files of others.
CHECKPOINTS = {
    "fit": (True, Writer("training/trainer", fit)),
    "audit": (False, Writer("report/checkpoint core/kept_scores", audited)),
    "HiddenJudgements.compare": (True, Writer("pooling/measures/hidden", compared)),
}

#: Which modules write, but through the writers above, or into temporary folders only.
OTHERS = {
    "report/card": "test_a_card_keeps_what_it_finds",
    "data/terrier": "tests/terrier/test_terrier_collection.py::test_only_its_own_indexes_are_removed",
    "data/readers": "tests/data/test_loaders.py, a temporary folder only",
    "core/files": "tests/test_files.py",
    "core/locks": "tests/test_files.py",
    "core/artifacts": "tests/test_artifacts.py",
    "linguistic/data/stanford": "tests/linguistic/test_stanford.py, files that are named after their content",
    "rankers/multi_vector": "tests/rankers/test_multi_vector.py, a temporary folder only",
}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_others_is_refused(name, overwrite, made, tmp_path):
    put(tmp_path / "out")
    before = files(tmp_path / "out")
    with pytest.raises(InputError, match="pyterrier_debias did not write"):
        FOLDERS[name].write(made, tmp_path / "out", overwrite)
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize("name", FOLDERS)
def test_files_of_others_stay_beside_a_result(name, made, tmp_path):
    out, write = tmp_path / "out", FOLDERS[name].write
    write(made, out, False)
    first = set(files(out))
    put(out, BESIDE)
    strangers = {**{name: STRANGERS[name] for name in BESIDE}, "empty": b"", "checkpoint-7": b""}
    with pytest.raises(InputError, match="exists already"):
        write(made, out, False)
    for _ in range(2):
        write(made, out, True)
        found = files(out)
        assert set(found) == first | set(strangers)
        assert {name: found[name] for name in strangers} == strangers
    assert MANIFEST in first and [path.name for path in out.iterdir()].count(MANIFEST) == 1


@pytest.mark.parametrize("name", FOLDERS)
def test_a_file_that_the_user_edited_stays(name, made, tmp_path):
    out, write = tmp_path / "out", FOLDERS[name].write
    write(made, out, False)
    edited = sorted(path for path in entries(out) if path.is_file() and path.name != MANIFEST)[0]
    edited.write_bytes(edited.read_bytes()[:-1] + b"!")
    before = files(out)
    with pytest.raises(InputError, match=f"holds {edited.name}, which has changed since pyterrier_debias wrote it"):
        write(made, out, True)
    assert files(out) == before
    edited.rename(tmp_path / "mine")
    write(made, out, True)
    assert set(files(out)) == set(before)


@pytest.mark.parametrize("name", FOLDERS)
def test_one_result_does_not_replace_another(name, made, tmp_path):
    """Overwriting asks for what was saved there before, and not for whatever the package may write."""
    other = "Vectors.write" if name in ("AuditResult.save", "audit --out") else "AuditResult.save"
    FOLDERS[other].write(made, tmp_path / "out", False)
    before = files(tmp_path / "out")
    with pytest.raises(InputError, match=r"exists already and holds (an audit|vectors of documents|postings of documents), not "):
        FOLDERS[name].write(made, tmp_path / "out", True)
    assert files(tmp_path / "out") == before


#: How each result is read again.
READERS = {
    "CrossEncoder.save": lambda folder: CrossEncoder.load(folder).module,
    "CrossEncoder(mean).save": lambda folder: CrossEncoder.load(folder).module,
    "BiEncoder.save": lambda folder: BiEncoder.load(folder).module,
    "BiEncoder(adore).save": lambda folder: BiEncoder.load(folder).score_pairs(["a"], ["a king"]),
    "MultiVector.save": lambda folder: MultiVector.load(folder).module,
    "SparseEncoder.save": lambda folder: SparseEncoder.load(folder).module,
    "T5Reranker.save": lambda folder: T5Reranker.load(folder).module,
    "TK.save": lambda folder: TK.load(folder).module,
    "CETReranker.save": CETReranker.load,
    "CETReranker.save, two rankers": CETReranker.load,
    "RelabelReranker.save": RelabelReranker.load,
    "GenderClassifier.save": lambda folder: GenderClassifier.load(folder, encoder=Letters()),
    "Vectors.write": Vectors.load,
    "BiEncoder.retriever": Vectors.load,
    "Postings.write": Postings.load,
    "SparseEncoder.retriever": Postings.load,
    "MATSAccumulator.save": MATSAccumulator.load,
    "AuditResult.save": read_audit,
    "audit --out": read_audit,
}


@pytest.mark.parametrize("name", FOLDERS)
def test_every_file_that_is_read_again_is_compared_with_its_checksum(name, made, tmp_path):
    """Cut, changed, emptied or away: one clear error that names it. Without the damage it is read again."""
    out, read = tmp_path / "out", READERS[name]
    FOLDERS[name].write(made, out, False)
    read(out)
    audits = name in ("AuditResult.save", "audit --out")  # of which only audit.json is read
    listed = [path for path in sorted(out.rglob("*")) if path.is_file() and path.suffix != ".md"]
    listed = [path for path in listed if path.name == "audit.json"] if audits else listed
    assert listed
    for path in listed:
        whole = path.read_bytes()
        middle = len(whole) // 2
        damages = [whole[:middle], b"", whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :]] if whole else [b"x"]
        for damaged in damages:
            path.write_bytes(damaged)
            with pytest.raises(InputError, match=r"damaged|not an audit|not UTF-8"):
                read(out)
        path.unlink()
        with pytest.raises(InputError) if path.name != MANIFEST else nullcontext():
            read(out)
        path.write_bytes(whole)
    read(out)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_file_of_that_name_is_kept(name, made, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(InputError, match="out exists already and is a file"):
        FOLDERS[name].write(made, tmp_path / "out", True)
    assert [path.name for path in tmp_path.iterdir() if path.name != "data"] == ["out"]
    assert (tmp_path / "out").read_text() == "mine"


@contextmanager
def small_files():
    """No file grows beyond 64 bytes, as on a full disk, whoever writes it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def as_nobody():
    """Root may write anywhere; another user may not."""
    if os.geteuid() == 0:
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)
    else:
        yield


@pytest.fixture
def open_path():
    """A folder that every user can reach."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_full_disk_changes_nothing(name, old, made, tmp_path):
    out, write = tmp_path / "out", FOLDERS[name].write
    if name == "audit --out":  # its data are written before, and it is printed and kept elsewhere; see tests/report
        pytest.skip("see tests/report/test_nothing_is_lost.py")
    write(made, tmp_path / "first", False)
    if old:
        shutil.copytree(tmp_path / "first", out)
    before = files(tmp_path)
    with small_files(), pytest.raises(InputError, match=r"cannot be written.*(File too large|nothing was changed)"):
        write(made, out, old)
    assert files(tmp_path) == before


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_may_not_be_written(name, made, open_path):
    (open_path / "out").mkdir(mode=0o555)
    if name == "audit --out":
        toy.write_files(open_path / "data")
    else:
        FOLDERS[name].write(made, open_path / "elsewhere", False)  # what it is made of is loaded
    before = files(open_path)
    with as_nobody(), pytest.raises(InputError, match=r"cannot be written: Permission denied"):
        FOLDERS[name].write(made, open_path / "out", False)
    with as_nobody(), pytest.raises(InputError, match=r"cannot be written: Permission denied"):
        FOLDERS[name].write(made, open_path / "new", False)
    assert files(open_path) == before


@pytest.mark.parametrize("name", FOLDERS)
def test_what_is_written_is_as_private_as_the_user_wants(name, made, tmp_path):
    old = os.umask(0o027)
    try:
        FOLDERS[name].write(made, tmp_path / "out", False)
    finally:
        os.umask(old)
    for path in (tmp_path / "out", *(tmp_path / "out").rglob("*")):
        assert oct(path.stat().st_mode & 0o777) == ("0o750" if path.is_dir() else "0o640"), path


@pytest.mark.parametrize("name", FILES)
def test_a_single_file_on_a_full_disk_or_where_nothing_may_be_written(name, made, tmp_path, open_path):
    for folder in (tmp_path, open_path):
        FILES[name].write(made, folder / name)
        before = files(folder)
        with small_files() if folder == tmp_path else as_nobody(), pytest.raises(InputError, match="cannot be written"):
            FILES[name].write(made, folder / name)
        assert files(folder) == before
        (folder / "folder").mkdir()
        with pytest.raises(InputError, match="cannot be written"):
            FILES[name].write(made, folder / "folder")


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints_where_nothing_can_be_written(name, made, tmp_path, open_path):
    writer = CHECKPOINTS[name][1]
    writer.write(made, tmp_path / "whole")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"is a file|cannot be written"):
        writer.write(made, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    (open_path / "out").mkdir(mode=0o555)
    with as_nobody(), pytest.raises(InputError, match=r"cannot be written.*Permission denied"):
        writer.write(made, open_path / "out")
    assert files(open_path) == {"out": b""}
    with small_files(), pytest.raises(InputError, match="cannot be written"):
        writer.write(made, tmp_path / "full")
    writer.write(made, tmp_path / "full")  # and goes on once there is room
    assert {path.name for path in (tmp_path / "full").iterdir()} == {path.name for path in (tmp_path / "whole").iterdir()}


@pytest.mark.parametrize("name", HOOKS)
def test_what_fills_a_folder_replaces_nothing_there(name, made, tmp_path):
    put(tmp_path / "out")
    before = files(tmp_path / "out")
    with pytest.raises(InputError, match=r"holds |exists already"):
        HOOKS[name](made, tmp_path / "out")
    found = files(tmp_path / "out")
    assert {name: found.get(name) for name in before} == before


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_written_where_it_is_asked_for_and_nowhere_else(name, made, tmp_path):
    put(tmp_path / "out")
    before = files(tmp_path / "out")
    for _ in range(2):  # whoever names a file means it
        FILES[name].write(made, tmp_path / "out" / name)
        found = files(tmp_path / "out")
        assert found.pop(name) and found == before


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints_and_files_of_others(name, made, tmp_path):
    beside, writer = CHECKPOINTS[name]
    put(tmp_path / "out")
    before = files(tmp_path / "out")
    if beside:
        for _ in range(2):
            writer.write(made, tmp_path / "out")
            found = files(tmp_path / "out")
            assert len(found) > len(before) and {name: found.get(name) for name in before} == before
        return
    with pytest.raises(InputError, match="is not empty and holds no checkpoint"):
        writer.write(made, tmp_path / "out")
    assert files(tmp_path / "out") == before
    writer.write(made, tmp_path / "new")
    put(tmp_path / "new")
    for _ in range(2):
        writer.write(made, tmp_path / "new")
        found = files(tmp_path / "new")
        assert {name: found.get(name) for name in before} == before and len(found) > len(before)


def test_a_card_keeps_what_it_finds(made, tmp_path):
    put(tmp_path / "out")
    before = files(tmp_path / "out")
    made.result.write_card(tmp_path / "out")
    found = files(tmp_path / "out")
    assert before.pop("README.md") in found.pop("README.md") and found == before


# That the table is complete


CALLS = {
    "copyfile", "makedirs", "mkdir", "move", "remove_written", "replace_whole", "rmdir", "rmtree", "save", "save_file",
    "save_modules", "save_pretrained", "savefig", "savez", "SummaryWriter", "tofile", "unlink", "whole_folder", "write",
    "write_bytes", "write_text", "write_whole",
}  # fmt: skip


def writes(path: Path) -> bool:
    """Whether a module has a call that writes or removes files."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        name = called.rpartition(".")[2]
        mode = node.args[1] if len(node.args) > 1 else next((k.value for k in node.keywords if k.arg == "mode"), None)
        opened = name == "open" and isinstance(mode, ast.Constant) and set(str(mode.value)) & set("wax+")
        if opened and ast.unparse(node.args[0]) != "os.devnull":
            return True
        if name in CALLS and called != "sys.stderr.write":
            return True
        if called in ("os.replace", "os.rename", "os.remove") or (name in ("to_csv", "to_json", "to_pickle") and node.args):
            return True
    return False


def test_every_module_that_writes_is_in_the_table():
    found = {path.relative_to(PACKAGE).with_suffix("").as_posix() for path in PACKAGE.rglob("*.py") if writes(path)}
    writers = [*FOLDERS.values(), *FILES.values(), *(writer for _, writer in CHECKPOINTS.values())]
    table = {module for writer in writers for module in writer.modules.split()} | set(OTHERS)
    assert found == table
