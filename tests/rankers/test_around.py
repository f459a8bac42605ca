"""Folders of stages that train a ranker: what may stand in their JSON."""

import json
import sys

import numpy as np
import pytest

from pyterrier_debias import CrossEncoder, InputError
from pyterrier_debias.core.files import MANIFEST
from pyterrier_debias.rankers.trained_reranker import TrainedRanker
from tests.training.toy import candidates

ABOUT = "pyterrier_debias_stage.json"


class Kept(TrainedRanker):
    """Scores with what it is given to keep, and has another ranker beside it."""

    def __init__(self, ranker, *, training=None):
        self.ranker = ranker
        self.training = training

    def check_options(self):
        """There are none."""

    def beside(self):
        return {"second": self.relevance}


class Own(CrossEncoder):
    """A user's ranker, whose module is imported already."""


@pytest.fixture
def saved(tiny, tmp_path):
    stage = Kept(Own(tiny()))
    stage.keep(Own(tiny()))
    stage.save(tmp_path / "saved")
    return tmp_path / "saved"


def change(saved, **content):
    about = json.loads((saved / ABOUT).read_text())
    (saved / ABOUT).write_text(json.dumps({**about, **content}))
    (saved / MANIFEST).unlink(missing_ok=True)  # what somebody made has no checksums, or right ones


def test_rankers_of_the_user_come_back_where_their_module_is_imported(saved, tiny):
    loaded = Kept.load(saved)
    assert type(loaded.relevance) is Own
    np.testing.assert_allclose(loaded(candidates())["score"], CrossEncoder(tiny())(candidates())["score"], atol=1e-6)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("subprocess:Popen", "Popen of the module subprocess is not a ranker"),
        ("os:system", "system of the module os is not a ranker"),
        ("pyterrier_debias.rankers.base:pick_device", "pick_device of the module pyterrier_debias.rankers.base is not a ranker"),
        ("pyterrier_debias.data.base:Collection", "is not a ranker"),
        ("pyterrier_debias_more:Ranker", "import pyterrier_debias_more first"),
        ("planted_by_somebody:Ranker", "import planted_by_somebody first"),
        (f"{__name__}:Kept", "Kept of the module .* is not a ranker"),
        ("", "names no class"),
        (7, "names no class"),
    ],
)
def test_nothing_else_is_opened(saved, where, message, tmp_path, monkeypatch):
    (tmp_path / "planted_by_somebody.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    for content in ({"ranker": where}, {"ranker": f"{__name__}:Own", "beside": {"second": where}}):
        change(saved, **content)
        with pytest.raises(InputError, match=message):
            Kept.load(saved)
    assert not (tmp_path / "ran").exists()
    assert "planted_by_somebody" not in sys.modules


@pytest.mark.parametrize("name", ["..", "../saved", "/etc", "a/b", "a\\b", ".", ""])
def test_rankers_lie_in_the_folder_itself(saved, name):
    change(saved, beside={name: f"{__name__}:Own"})
    with pytest.raises(InputError, match="is not a folder inside it"):
        Kept.load(saved)
