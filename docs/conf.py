"""Sphinx configuration; run it through `docs/build.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pyterrier_debias import __version__

project = "pyterrier_debias"
copyright = "the pyterrier_debias authors"
release = __version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_autodoc_typehints", "directives"]
html_theme = "furo"
html_title = f"pyterrier_debias {__version__}"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
# Signatures name types of libraries that the pages do not link to.
nitpicky = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False


def no_addresses(app, doctree, docname):
    """Measures such as nDCG@10 are no mail addresses, which is what docutils takes them for."""
    from docutils import nodes

    for reference in list(doctree.findall(nodes.reference)):
        if reference.get("refuri", "").startswith("mailto:"):
            reference.replace_self(reference.children)


def setup(app):
    """What Sphinx calls."""
    app.connect("doctree-resolved", no_addresses)
