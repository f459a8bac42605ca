"""The documentation builds without a warning, and needs no network to be read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_documentation_builds():
    pytest.importorskip("furo", reason="the extra 'docs' is not installed")
    done = subprocess.run([sys.executable, "-W", "ignore", str(ROOT / "docs" / "build.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = ROOT / "docs" / "_build"
    written = {path: path.read_text(encoding="utf-8") for path in built.rglob("*.html")}
    assert {built / "index.html", built / "position.html", built / "api" / "position.html"} <= written.keys()
    assert [path.name for path, text in written.items() if "mailto:" in text] == []
    # The documentation of a class leads to the section that a ``related`` line connects with it.
    link = r'<div class="related [^>]*>.*?position\.html#positions-of-answers"'
    assert re.search(link, written[built / "api" / "position.html"], re.DOTALL)
    # Formulas are drawn by the browser alone.
    assert "<math" in written[built / "cet.html"]
    assert [path.name for path, text in written.items() if re.search(r'<script[^>]+src="http|mathjax', text, re.IGNORECASE)] == []
