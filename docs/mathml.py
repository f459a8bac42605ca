"""Formulas as MathML, which browsers draw without a script, a font or a network.

docutils' own converter writes it, so that nothing is needed beyond what Sphinx brings. A formula that the converter does not
know is an error of the build.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def mathml(formula: str, *, block: bool) -> str:
    """A formula of LaTeX as MathML; of several lines (``\\\\``) each is a row, aligned at ``&``."""
    # The converter knows the sizes of brackets by the names that say which side they are on.
    sided = re.sub(r"\\big(?=[)\]])", r"\\bigr", re.sub(r"\\big(?=[(\[])", r"\\bigl", formula))
    return tex2mathml(sided if r"\\" in sided else sided.replace("&", ""), as_block=block)


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict:
    """Register the renderer; ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True}
