"""Small equivalents of the directives of PyTerrier's own documentation, and formulas as MathML, so that the pages build alone.

Formulas become MathML by docutils' own converter: browsers draw it without a script, a font or a network, and it needs no package
beyond those that Sphinx brings. A formula that the converter does not know is an error of the build.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


class Schematic(Directive):
    """Runs Python code and draws the pipeline that its last line gives; what stands above ``# FOLD`` is not shown."""

    has_content = True
    option_spec = {"show_code": directives.flag}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """The code, where it is to be shown, and the drawing."""
        import pyterrier as pt

        pt.documentation._cached_objects_inv = {}
        lines = list(self.content)
        namespace: dict = {"pt": pt}
        exec("\n".join(lines[:-1]), namespace)
        pipeline = eval(lines[-1], namespace)
        drawing = nodes.raw("", pt.schematic.draw(pipeline, outer_class="pts-doc"), format="html")
        if "show_code" not in self.options:
            return [drawing]
        shown = lines[lines.index("# FOLD") + 1 :] if "# FOLD" in lines else lines
        code = "\n".join(shown)
        return [nodes.literal_block(code, code, language="python"), drawing]


class CiteDblp(Directive):
    """A line that links a paper's entry in DBLP."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """One paragraph with the link."""
        key = self.arguments[0]
        link = nodes.reference("", f"dblp: {key}", refuri=f"https://dblp.org/rec/{key}.html")
        return [nodes.paragraph("", "", nodes.strong("", "Citation. "), link)]


class Related(Directive):
    """A line that names what a page documents."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Nothing: PyTerrier's site uses the directive for cross-references."""
        return []


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
    """Register the directives and the renderer of formulas."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.add_directive("schematic", Schematic)
    app.add_directive("cite.dblp", CiteDblp)
    app.add_directive("related", Related)
    return {"parallel_read_safe": True}
