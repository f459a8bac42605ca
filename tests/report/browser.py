"""Pages in a real browser, where one is installed."""

import re
import shutil
import subprocess
from html import escape, unescape

import pytest

needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")


def in_a_browser(html, probe, folder, width=1280):
    """What a script at the end of a page leaves in the title; the page stands in a frame, since windows are never narrow."""
    page, framed = folder / "page.html", escape(html.replace("</body>", f"<script>{probe}</script></body>"))
    page.write_text(f'<title></title><iframe srcdoc="{framed}" style="width:{width}px;height:800px;border:0"></iframe>')
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run(
        ["chromium", *flags, "--dump-dom", page.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    return unescape(re.search(r"<title>(.*)</title>", done.stdout, re.DOTALL)[1])
