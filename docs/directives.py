"""Small equivalents of the directives that PyTerrier's own documentation defines, so that the pages build alone."""

from __future__ import annotations

from docutils import nodes
from docutils.parsers.rst import Directive, directives
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


def setup(app: Sphinx) -> dict:
    """Register the directives."""
    app.add_directive("schematic", Schematic)
    app.add_directive("cite.dblp", CiteDblp)
    app.add_directive("related", Related)
    return {"parallel_read_safe": True}
