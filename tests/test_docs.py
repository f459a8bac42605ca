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
    assert (ROOT / "docs" / "_build" / "pages" / "position.html").is_file()
