"""Links of the pages in Markdown: README's work on a package index too, where relative ones would lead nowhere."""

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*ROOT.glob("*.md"), ROOT / "docs" / "RELEASING.md", ROOT / "examples" / "README.md"]
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)")


def links(page: Path) -> list[tuple[bool, str]]:
    """Whether it is an image, and the address."""
    return [(bool(mark), address) for mark, address in LINK.findall(page.read_text(encoding="utf-8"))]


def test_readme_shows_and_names_files_of_the_repository_by_whole_addresses():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    metadata = config["metadata"]
    assert metadata["long_description"] == "file: README.md"
    shown, named = f"{metadata['url']}/raw/main/", f"{metadata['url']}/blob/main/"
    found = links(ROOT / "README.md")
    assert [address for _, address in found if not address.startswith("https://")] == []
    own = [(image, address) for image, address in found if address.startswith(metadata["url"])]
    assert sum(image for image, _ in own) == 3 and len(own) >= 7
    for image, address in own:
        start = shown if image else named
        assert address.startswith(start) and (ROOT / address.removeprefix(start)).is_file(), address


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    relative = [address for _, address in links(page) if not re.match(r"https?://|mailto:|#", address)]
    assert [address for address in relative if not (page.parent / address.partition("#")[0]).exists()] == []
