"""The program that draws the documentation's gallery, on its smallest collections."""

from pathlib import Path

from tests.conftest import ROOT

FOLDER = ROOT / "examples"
PAGES = ROOT / "pyterrier_debias" / "pt_docs"


def test_gallery(tmp_path, run):
    code, _ = run("gallery.py", "--out", tmp_path, "--topics", 12)
    assert not code
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == sorted(path.name for path in PAGES.glob("gallery_*.png"))
    assert all(Path(PAGES / name).stat().st_size < 100_000 for name in drawn)
