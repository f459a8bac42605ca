"""Small equivalents of the directives of PyTerrier's own documentation, and formulas as MathML, so that the pages build alone.

Formulas become MathML by docutils' own converter: browsers draw it without a script, a font or a network, and it needs no package
beyond those that Sphinx brings. A formula that the converter does not know is an error of the build.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def last_value(code: str) -> object:
    """Run Python code in which ``pt`` is PyTerrier, and return the value of its last expression."""
    import pyterrier as pt

    *body, last = ast.parse(code).body
    namespace: dict = {"pt": pt}
    exec(compile(ast.Module(body, []), "<schematic>", "exec"), namespace)
    if not isinstance(last, ast.Expr):
        raise ValueError("the code of a schematic must end with the pipeline that is to be drawn")
    return eval(compile(ast.Expression(last.value), "<schematic>", "eval"), namespace)


class Schematic(Directive):
    """Runs Python code and draws the pipeline in its last expression; the lines above ``# FOLD`` are not shown."""

    has_content = True
    option_spec = {"show_code": directives.flag, "input_columns": directives.unchanged}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """The code, if it is shown, and the drawing."""
        import pyterrier as pt

        pt.documentation._cached_objects_inv = {}
        columns = self.options.get("input_columns")
        columns = columns and [column.strip() for column in columns.split(",")]
        lines = list(self.content)
        try:
            drawn = pt.schematic.draw(last_value("\n".join(lines)), input_columns=columns, outer_class="pts-doc")
        except Exception as error:
            raise self.error(f"this schematic cannot be drawn: {type(error).__name__}: {error}") from error
        drawing = nodes.raw("", drawn, format="html")
        if "show_code" not in self.options:
            return [drawing]
        code = "\n".join(lines[lines.index("# FOLD") + 1 :] if "# FOLD" in lines else lines)
        return [nodes.literal_block(code, code, language="python"), drawing]


class CiteDblp(Directive):
    """A line that links a paper's entry in DBLP; PyTerrier's site shows the citation itself."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """One paragraph with the link."""
        key = self.arguments[0]
        link = nodes.reference("", f"dblp: {key}", refuri=f"https://dblp.org/rec/{key}.html")
        return [nodes.paragraph("", "", nodes.strong("", "Citation. "), link, classes=["dblp-citation"])]


class Related(SphinxDirective):
    """Names the class or function that a section is about, whose documentation then links to the section."""

    required_arguments = 1
    option_spec = {"title": directives.unchanged}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """Nothing here; see :func:`see_also`."""
        section = self.state.parent
        while not isinstance(section, nodes.section):
            section = section.parent
        title = self.options.get("title", section.next_node(nodes.title).astext())
        about = self.env.metadata.setdefault(self.env.docname, {})
        about.setdefault("related", []).append((self.arguments[0], section["ids"][0], title))
        return []


def see_also(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put links to the sections about a name at the end of its documentation."""
    found: dict[str, list[nodes.reference]] = {}
    for page, about in app.env.metadata.items():
        for name, section, title in about.get("related", ()):
            where = f"{app.builder.get_relative_uri(docname, page)}#{section}"
            found.setdefault(name, []).append(nodes.reference("", title, internal=True, refuri=where))
    for described in doctree.findall(addnodes.desc):
        names = described.next_node(addnodes.desc_signature).get("ids", [])
        links = [link for name in names for link in found.get(name, ())]
        if links:
            listed = [node for link in links for node in (nodes.Text(", "), link)][1:]
            described[-1] += addnodes.seealso("", nodes.paragraph("", "", *listed), classes=["related"])


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
    app.connect("doctree-resolved", see_also)
    return {"parallel_read_safe": True}
