"""Build the documentation into docs/_build; a warning is an error.

The pages live in the package (`pyterrier_debias/pt_docs`), where PyTerrier's own site picks them up; this program copies them
beside `conf.py`, writes one API page for each group of public names, and runs Sphinx.
"""

import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

import pyterrier_debias

HERE = Path(__file__).resolve().parent
PAGES = HERE.parent / "pyterrier_debias" / "pt_docs"

#: Title of an API page, to the modules (below pyterrier_debias) whose public names it shows.
API = {
    "Position": ["position"],
    "Survivorship": ["survivorship"],
    "Gender": ["gender"],
    "Linguistic": ["linguistic"],
    "Pooling": ["pooling"],
    "Rankers": ["rankers"],
    "Training": ["training"],
    "Data": ["data"],
    "Audit": ["report", "core"],
    "Core": [],
}


#: Title of an API page, to the modules that it shows whole, pure functions included.
WHOLE = {
    "Training": [f"training.{name}" for name in ("losses", "samplers", "weights", "method", "report")],
    "Core": [f"core.{name}" for name in ("frames", "text", "statistics", "evaluation", "stage", "files")],
}


def api_page(title: str, modules: list[str]) -> str:
    """The reStructuredText of one API page."""
    names = [n for n, m in pyterrier_debias._PUBLIC.items() if m in modules or m.split(".")[0] in modules]
    lines = [title, "=" * len(title), ""]
    for name in names:
        lines += [name, "-" * len(name), "", f".. autoclass:: pyterrier_debias.{name}" if isinstance(
            getattr(pyterrier_debias, name), type) else f".. autofunction:: pyterrier_debias.{name}"]  # fmt: skip
        lines += ["   :members:", "   :inherited-members: Transformer, ValueError", ""] if isinstance(
            getattr(pyterrier_debias, name), type) else [""]  # fmt: skip
    for module in WHOLE.get(title, ()):
        heading = f"pyterrier_debias.{module}"
        lines += [heading, "-" * len(heading), "", f".. automodule:: {heading}", "   :members:", ""]
    return "\n".join(lines)


def main() -> int:
    """Copy the pages, write the API pages, run Sphinx; returns its exit code."""
    for folder in ("pages", "api", "_build"):
        shutil.rmtree(HERE / folder, ignore_errors=True)
    shutil.copytree(PAGES, HERE / "pages")
    (HERE / "api").mkdir()
    for title, modules in API.items():
        (HERE / "api" / f"{title.lower().replace(' ', '-')}.rst").write_text(api_page(title, modules))
    return sphinx(["-W", "--keep-going", "-q", "-b", "html", str(HERE), str(HERE / "_build")])


if __name__ == "__main__":
    sys.exit(main())
