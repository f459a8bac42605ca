"""What the package keeps in folders is a PyTerrier artifact: opened, packed and shared by PyTerrier's own means."""

import configparser
import http.server
import importlib
import importlib.metadata
import json
import pickle
import pkgutil
import sys
import threading
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pyterrier_debias
from pyterrier_debias import (
    TK,
    AdversarialReranker,
    BiasAwareReranker,
    BiEncoder,
    CETReranker,
    CrossEncoder,
    EqualizeReranker,
    FocalReranker,
    GenderClassifier,
    GroupDROReranker,
    InputError,
    MultiVector,
    RelabelReranker,
    T5Reranker,
    audit,
)
from pyterrier_debias.core.artifacts import META, Saved
from pyterrier_debias.core.files import MANIFEST
from pyterrier_debias.position.formulas.mats import MATSAccumulator
from pyterrier_debias.rankers.vectors import Vectors
from tests.contract_cases import CORPUS, fitted, folder, topics, women
from tests.gender.letters import Letters, annotated
from tests.pooling.judge import knows, pooled
from tests.report import toy
from tests.training.toy import candidates, training

CONFIG = Path(__file__).resolve().parent.parent / "setup.cfg"


def declared() -> list[importlib.metadata.EntryPoint]:
    """The entry points of setup.cfg, whatever is installed."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(CONFIG)
    return [
        importlib.metadata.EntryPoint(*(part.strip() for part in line.split("=")), group)
        for group, lines in config["options.entry_points"].items()
        for line in lines.strip().splitlines()
        if not line.startswith("#")
    ]


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """PyTerrier sees the entry points of the checkout."""
    there = pt.utils.entry_points

    def found(group):
        ours = {point.name: point for point in declared() if point.group == group}
        return (*(point for point in there(group) if point.name not in ours), *ours.values())

    monkeypatch.setattr(pt.utils, "entry_points", found)


RANKERS = {
    CrossEncoder: "build",
    BiEncoder: "build_sentence_transformer",
    MultiVector: "build_multi_vector",
    T5Reranker: "build_t5",
    TK: "build_tk",
}
STAGES = (AdversarialReranker, BiasAwareReranker, CETReranker, EqualizeReranker, FocalReranker, GroupDROReranker, RelabelReranker)
EVERY = (*RANKERS, *STAGES)


@cache
def saved_in(kind, place):
    """A stage of this class that was trained, and saved to a folder."""
    if kind in RANKERS:
        stage = kind(folder(RANKERS[kind]), max_length=24, training=training(max_steps=1, batch_size=2))
        stage.fit(women(), pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d0", "d5"], "label": 1}))
    elif kind is RelabelReranker:
        stage = kind(CrossEncoder(folder("build")), knows, training=training(max_steps=1, batch_size=8))
        stage.fit(candidates(), pooled())
    else:
        stage = kind.load(fitted(kind))
    stage.save(place)
    return stage


@pytest.fixture
def saved(request, tmp_path_factory):
    """A class, a stage of it, and the folder that it was saved to."""
    kind = request.param
    place = tmp_path_factory.getbasetemp() / f"saved-{kind.__name__}"
    return kind, saved_in(kind, place), place


every = pytest.mark.parametrize("saved", EVERY, ids=lambda kind: kind.__name__, indirect=True)


def scores(stage):
    return stage(women())[["qid", "docno", "score"]].sort_values(["qid", "docno"])["score"].to_numpy()


@every
def test_pyterrier_opens_what_was_saved(saved):
    kind, stage, place = saved
    opened = pt.Artifact.load(str(place))
    assert type(opened) is kind
    assert np.array_equal(scores(opened), scores(stage))
    assert opened.path == stage.path == place.resolve()
    assert META in json.loads((place / MANIFEST).read_text())["files"]
    wanted = {"type": "ranker", "format": kind.ARTIFACT_FORMAT, "package_hint": "pyterrier_debias"}
    assert json.loads((place / META).read_text()) == wanted


@every
def test_folders_from_before_are_opened_too(saved, tmp_path):
    """Without the file of PyTerrier's, in a folder with a list and in one without."""
    kind, stage, place = saved
    kind.load(place).save(tmp_path / "old")
    listed = json.loads((tmp_path / "old" / MANIFEST).read_text())
    (tmp_path / "old" / META).unlink()
    del listed["files"][META]
    (tmp_path / "old" / MANIFEST).write_text(json.dumps(listed))
    for _ in range(2):
        for opened in (kind.load(tmp_path / "old"), pt.Artifact.load(str(tmp_path / "old"))):
            assert type(opened) is kind and np.array_equal(scores(opened), scores(stage))
        (tmp_path / "old" / MANIFEST).unlink(missing_ok=True)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A web server of this machine over a folder, and a home of PyTerrier's own."""
    monkeypatch.setattr(pt.io, "pyterrier_home", lambda: str(tmp_path / "home"))
    (tmp_path / "www").mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "www"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield tmp_path / "www", f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


#: Of PyTerrier's own way to unpack, on Python 3.12 and 3.13.
unpacked = pytest.mark.filterwarnings("ignore:Python 3.14 will, by default, filter:DeprecationWarning")


@unpacked
@every
def test_a_package_holds_the_whole_folder(saved, served):
    kind, stage, place = saved
    www, url = served
    assert stage.build_package(str(www / "it.tar.lz4"), verbose=False) == str(www / "it.tar.lz4")
    opened = pt.Artifact.from_url(f"{url}/it.tar.lz4")
    assert type(opened) is kind and np.array_equal(scores(opened), scores(stage))
    names = [{p.relative_to(at).as_posix() for p in Path(at).rglob("*") if p.is_file()} for at in (place, opened.path)]
    assert names[0] == names[1] and MANIFEST in names[1]
    own = kind.from_url(f"{url}/it.tar.lz4")
    assert own == opened
    # What is damaged on its way is not opened.
    weights = max(Path(opened.path).rglob("*.safetensors"), key=lambda path: path.stat().st_size)
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=f"is damaged: .*{weights.name}"):
        scores(pt.Artifact.from_url(f"{url}/it.tar.lz4"))


@unpacked
@pytest.mark.parametrize("parts", [None, 20_000])
def test_a_package_of_any_size_is_opened(tmp_path, served, parts):
    """PyTerrier reads 8,192 bytes at a time, and not the next ones if they hold only the four bytes that end a package."""
    model = BiEncoder(folder("build_sentence_transformer"))
    model.retriever(CORPUS[CORPUS["text"] != ""], folder=tmp_path / "v")
    vectors, noise = Vectors.load(tmp_path / "v"), np.random.default_rng(0).bytes(100_000)

    def size(length):
        (tmp_path / "v" / "README.md").write_bytes(noise[:length])
        pt.Artifact.build_package(vectors, str(tmp_path / "plain"), max_file_size=parts, verbose=False)
        return sum(path.stat().st_size for path in tmp_path.glob("plain*") if path.suffix != ".json")

    first = 50_000 - size(50_000) % 8192
    assert any(1 <= size(length) % 8192 <= 4 for length in range(first - 100, first + 100))
    www, url = served
    vectors.build_package(str(www / "v.tar.lz4"), max_file_size=parts, verbose=False)
    opened = pt.Artifact.from_url(f"{url}/v.tar.lz4")
    pd.testing.assert_frame_equal(model.retriever(opened)(topics()), model.retriever(vectors)(topics()))


@every
def test_what_has_changed_since_is_not_packed(saved, tmp_path):
    kind, _, place = saved
    opened = kind.load(place)
    ranker = opened if kind in RANKERS else opened.relevance
    next(ranker.module.parameters()).data.add_(1.0)
    with pytest.raises(InputError, match=f"{kind.__name__}: it differs from what .* holds; call save"):
        opened.build_package(str(tmp_path / "it.tar.lz4"), verbose=False)
    assert list(tmp_path.iterdir()) == []


def test_an_option_that_has_changed_since_is_not_packed(tmp_path):
    saved_in(CrossEncoder, tmp_path / "ranker")
    with pytest.raises(InputError, match=r"it differs from what .* holds"):
        CrossEncoder.load(tmp_path / "ranker", long="maxp").build_package(str(tmp_path / "it.tar.lz4"), verbose=False)


def test_what_was_never_saved_is_not_packed():
    with pytest.raises(InputError, match=r"CrossEncoder: there is no folder to pack; call save\(folder\) first"):
        CrossEncoder(folder("build")).build_package()


def test_locks_are_not_packed(tmp_path):
    ranker = saved_in(TK, tmp_path / "tk")
    for name in (".tk.lock.pyterrier_debias", "selection/.x.0123abcd.new.pyterrier_debias"):
        (tmp_path / "tk" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "tk" / name).write_text("")
    (tmp_path / "tk" / "selection" / "mine.txt").write_text("mine")
    told = {}
    file = ranker.build_package(str(tmp_path / "it.tar.lz4"), metadata_out=told, verbose=False)
    packed = [entry["path"] for entry in json.loads(Path(f"{file}.json").read_text())["contents"]]
    assert not [name for name in packed if "lock" in name or ".new." in name] and "selection/mine.txt" in packed
    assert told["format"] == "debias_tk"


def test_one_class_does_not_open_what_another_saved(tmp_path):
    saved_in(TK, tmp_path / "tk")
    with pytest.raises(InputError, match=r"holds a TK; open it with TK\.load"):
        CrossEncoder.load(str(tmp_path / "tk"))


def test_sent_to_the_hub_with_the_page_of_the_folder(tmp_path, monkeypatch):
    """What would be uploaded; nothing is."""
    import huggingface_hub

    ranker, sent = saved_in(CrossEncoder, tmp_path / "ranker"), {}
    (tmp_path / "ranker" / "README.md").write_text("---\nlicense: mit\n---\n# Words of the author\n")

    def upload_folder(*, repo_id, folder_path, repo_type, revision):
        sent.update({path.name: path.read_bytes() for path in Path(folder_path).iterdir()}, repo=(repo_id, repo_type, revision))
        return "there"

    for name in ("create_repo", "create_branch"):
        monkeypatch.setattr(huggingface_hub, name, lambda *args, **options: None)
    monkeypatch.setattr(huggingface_hub, "upload_folder", upload_folder)
    ranker.to_hf("me/ranker")
    assert sent["repo"] == ("me/ranker", "dataset", "main") and len(sent["artifact.tar.lz4"]) > 1000
    page = huggingface_hub.DatasetCard(sent["README.md"].decode())
    assert "pyterrier-artifact.ranker.debias_cross_encoder" in page.data.tags
    assert "pt.Artifact.from_hf('me/ranker')" in page.text and "# Words of the author" in page.text and "license" not in page.text


# Other things that are kept


def test_vectors(tmp_path):
    model = BiEncoder(folder("build_sentence_transformer"))
    built = model.retriever(CORPUS[CORPUS["text"] != ""], folder=tmp_path / "v")
    opened = pt.Artifact.load(str(tmp_path / "v"))
    assert type(opened) is Vectors and opened == built.vectors and opened.path == tmp_path / "v"
    pd.testing.assert_frame_equal(model.retriever(opened)(topics()), built(topics()))
    assert Path(opened.build_package(verbose=False)).name == "v.tar.lz4"
    with pytest.raises(InputError, match="Vectors: there is no folder to pack"):
        Vectors.gather([(["d1"], np.eye(1))]).build_package()


def test_sums_of_mats(tmp_path):
    passages = [("the cat saw the dog".split(), np.random.default_rng(0).normal(size=(5, 8))) for _ in range(4)]
    sums = MATSAccumulator().update(list("abcd"), passages)
    sums.save(tmp_path / "sums")
    opened = pt.Artifact.load(str(tmp_path / "sums"))
    assert type(opened) is MATSAccumulator
    pd.testing.assert_frame_equal(opened.result().curve(), sums.result().curve(), check_exact=True)
    opened.build_package(str(tmp_path / "sums.tar.lz4"), verbose=False)
    with pytest.raises(InputError, match="it differs from what"):
        opened.update(["e"], passages[:1]).build_package(str(tmp_path / "more.tar.lz4"), verbose=False)


def test_a_classifier_of_gender(tmp_path):
    head = GenderClassifier(folder("build_sentence_transformer")).fit(*annotated())
    head.save(tmp_path / "head")
    opened = pt.Artifact.load(str(tmp_path / "head"))
    texts = ["who is the queen", "the king"]
    assert type(opened) is GenderClassifier and np.array_equal(opened.probabilities(texts), head.probabilities(texts))
    head.build_package(str(tmp_path / "head.tar.lz4"), verbose=False)
    GenderClassifier(Letters()).fit(*annotated())
    moved = pt.Artifact.load(str(tmp_path / "head"), encoder=Letters())
    assert isinstance(moved.encoder, Letters)


def test_an_audit(tmp_path):
    dataset = toy.collection()
    result = audit(toy.systems(dataset), dataset, biases=[toy.ORDER])
    result.save(tmp_path / "audit")
    opened = pt.Artifact.load(str(tmp_path / "audit"))
    pd.testing.assert_frame_equal(opened.findings, result.findings)


def test_foreign_folders_are_left_to_others(tmp_path):
    from pyterrier_debias.core.artifacts import told_by_files

    (tmp_path / MANIFEST).write_text("{")
    assert told_by_files(str(tmp_path), []) is None
    assert told_by_files(str(tmp_path), [MANIFEST]) is None
    (tmp_path / MANIFEST).write_text(json.dumps({"holds": ["a list"]}))
    assert told_by_files(str(tmp_path), [MANIFEST]) is None
    (tmp_path / "pyterrier_debias_stage.json").write_text(json.dumps({"stage": "os.system"}))
    with pytest.raises(ValueError, match="No implementation found"):
        pt.Artifact.load(str(tmp_path))


class Planted:
    """A pickle that would leave a trace."""

    def __init__(self, trace):
        self.trace = str(trace)

    def __reduce__(self):
        return Path.touch, (Path(self.trace),)


def planted(name, place, trace):
    """What somebody who wants to run code could change in a folder, its list included."""
    (place / MANIFEST).unlink()
    if name == "modules":
        modules = json.loads((place / "modules.json").read_text())
        modules[0]["type"] = "tests.executed.Module"
        (place / "modules.json").write_text(json.dumps(modules))
    elif name == "weights":
        for file in place.rglob("*.safetensors"):
            file.with_name("pytorch_model.bin").write_bytes(pickle.dumps(Planted(trace)))
            file.unlink()
    elif name == "class":
        about = json.loads((place / "pyterrier_debias_stage.json").read_text())
        (place / "pyterrier_debias_stage.json").write_text(json.dumps({**about, "ranker": "tests.executed:Module"}))
    else:
        np.save(place / "docnos.npy", np.array([Planted(trace)] * 5, dtype=object), allow_pickle=True)


@pytest.mark.parametrize("name", ["modules", "weights", "class", "arrays"])
def test_what_comes_from_elsewhere_runs_no_code(name, tmp_path):
    trace, place = tmp_path / "trace", tmp_path / "it"
    if name == "arrays":
        BiEncoder(folder("build_sentence_transformer")).retriever(CORPUS[CORPUS["text"] != ""], folder=place)
    else:
        saved_in(CETReranker if name == "class" else BiEncoder, place)
    planted(name, place, trace)
    with pytest.raises(InputError):
        pt.Artifact.load(str(place))(women())
    assert not trace.exists() and "tests.executed" not in sys.modules


# Declarations


def classes(base):
    for kind in base.__subclasses__():
        yield kind
        yield from classes(kind)


def test_every_class_that_is_saved_has_an_entry_point():
    for _, name, _ in pkgutil.walk_packages(pyterrier_debias.__path__, "pyterrier_debias."):
        if not name.endswith("__main__"):
            importlib.import_module(name)
    ours = {kind for kind in classes(Saved) if kind.__module__.startswith("pyterrier_debias.")}
    whole = [kind for kind in ours if ours.isdisjoint(kind.__subclasses__())]
    wanted = {f"{kind.ARTIFACT_TYPE}.{kind.ARTIFACT_FORMAT}" for kind in whole}
    points = {point.name: point for point in declared() if point.group == "pyterrier.artifact"}
    assert wanted and set(points) - {"bias_audit.debias_audit_result"} == wanted
    for name, point in points.items():
        loaded = point.load()
        assert callable(loaded)
        if name in wanted:
            assert pt.inspect.artifact_type_format(loaded.__self__) == tuple(name.split(".", 1))


def test_other_entry_points_lead_somewhere():
    for point in declared():
        assert callable(point.load()), point
