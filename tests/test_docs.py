"""What `make docs` looks at in the pages that it has built; it builds them for itself, which takes a minute."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GOOD = {
    "index.html": '<a href="position.html">',
    "cet.html": '<script src="_static/theme.js"></script><math>',
    "api/position.html": '<div class="related docutils">\n<a href="../position.html#positions-of-answers">',
}


@pytest.fixture
def problems():
    pytest.importorskip("sphinx", reason="the extra 'docs' is not installed")
    return runpy.run_path(str(ROOT / "docs" / "build.py"))["problems"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, []),
        ({"index.html": None}, ["index.html: is not there"]),
        ({"cet.html": "<p>"}, ["cet.html: lacks <math"]),
        ({"api/position.html": "<p>"}, ["api/position.html: lacks <div"]),
        ({"a.html": '<a href="mailto:nDCG@10">'}, ["a.html: an address; write nDCG"]),
        ({"a.html": '<SCRIPT async src="https://x"></SCRIPT>'}, ["a.html: a script from the network"]),
        ({"a.html": "MathJax"}, ["a.html: a script from the network"]),
        ({"a.html": '<img alt="../_images/a.png" src="../_images/a.png">'}, ["a.html: a picture without :alt:"]),
    ],
)
def test_pages_are_looked_at(changed, told, problems, tmp_path):
    for name, text in {**GOOD, **changed}.items():
        if text is not None:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
    found = problems(tmp_path)
    assert len(found) == len(told) and all(one.startswith(start) for one, start in zip(found, told))
