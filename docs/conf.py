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
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
# Signatures name types of libraries that the pages do not link to.
nitpicky = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False

