"""The pipelines that README and the page about Terrier show, as they are written there, over small local data and tiny models."""

import re
from pathlib import Path

import pandas as pd
import pytest

from pyterrier_debias import PlantedCollection, open_dataset
from tests.tiny_models import build

pytestmark = pytest.mark.java

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = {"README": ROOT / "README.md", "terrier": ROOT / "pyterrier_debias" / "pt_docs" / "terrier.rst"}

#: What stands in a page, and the name in the block's namespace that takes its place. Everything that would be downloaded is here.
STAND_INS = {
    "open_dataset('irds:beir/nfcorpus/test')": "LOCAL['test']",
    "open_dataset('irds:beir/nfcorpus/train')": "LOCAL['train']",
    "'cross-encoder/ms-marco-MiniLM-L6-v2'": "LOCAL['model']",
    "'distilbert-base-uncased'": "LOCAL['model']",
}


def blocks(page: str) -> list[str]:
    """The Python blocks of a page, in order."""
    text = PAGES[page].read_text(encoding="utf-8")
    if PAGES[page].suffix == ".md":
        return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", text, flags=re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Two small collections in place of NFCorpus, and a random cross-encoder in place of trained ones."""
    collection = PlantedCollection(seed=1, topics=8, passages=120, train_topics=4)
    train = open_dataset(collection, split="train")
    model = build(tmp_path_factory.mktemp("model"))
    return {"test": collection, "train": train, "model": str(model)}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_as_it_is_written(page, local, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "indexes").mkdir()
    names = {"LOCAL": local}
    found = blocks(page)
    assert found
    for block in found:
        for written, name in STAND_INS.items():
            block = block.replace(written, name)
        assert "irds:" not in block
        exec(compile(block, f"<{page}>", "exec"), names)
    for name, value in names.items():
        if isinstance(value, pd.DataFrame):
            assert len(value), name


def test_every_stand_in_is_in_a_page():
    written = "\n".join(block for page in PAGES for block in blocks(page))
    assert [one for one in STAND_INS if one not in written] == []
