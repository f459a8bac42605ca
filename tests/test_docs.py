"""The documentation builds without a warning."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_documentation_builds():
    pytest.importorskip("furo", reason="the extra 'docs' is not installed")
    done = subprocess.run([sys.executable, "-W", "ignore", str(ROOT / "docs" / "build.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = {page: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "_build").rglob("*.html")}
    assert ROOT / "docs" / "_build" / "pages" / "position.html" in built
    # Measures such as nDCG@10 stand in literals: elsewhere they are taken for mail addresses, on PyTerrier's site too.
    assert [page.name for page, text in built.items() if "mailto:" in text] == []
