"""Figures as pictures: drawn on demand, or in advance."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pyterrier_debias.core.bias import Figure
from pyterrier_debias.core.errors import check_choice

if TYPE_CHECKING:
    from matplotlib import figure as mpl

#: Colours of pictures, to those on a dark page: background, ink, reference lines, grid, and the series' colours.
DARK = {
    "#ffffff": "#1b212a", "#000000": "#e8ecf1", "#595959": "#a3adba", "#e0e0e0": "#39434f",
    "#0072b2": "#5ab4f0", "#d55e00": "#ff8f4d", "#009e73": "#2fcb9c", "#cc79a7": "#e8a0c8", "#e69f00": "#f2b632",
    "#56b4e9": "#9ad8ff",
    "#8a3a00": "#c4622e", "#00573f": "#1f9470", "#8b3a68": "#b56a94", "#806000": "#b08a2a",
    "#7d7dc8": "#a9a9ee", "#8c8c8c": "#6b7581", "#5b2c91": "#9b6fe0",
}  # fmt: skip


@dataclass(frozen=True)
class DrawnFigure(Figure):
    """A figure that has already been drawn.

    Attributes:
        pictures: Format (``'png'``, ``'svg'``) to the content of a file.
    """

    pictures: Mapping[str, bytes]

    @classmethod
    def of(cls, figure: Figure) -> DrawnFigure:
        """Draw a figure in both formats.

        Args:
            figure: Any figure.

        Returns:
            The figure, drawn.
        """
        from pyterrier_debias.core.plots import rendered_as

        if isinstance(figure, cls):
            return figure
        # The layout of a figure that was written before may differ in the last digit: pages hold the first one.
        return cls.from_pictures(figure.name, figure.caption, rendered_as(_drawn(figure), ("svg", "png")))

    @classmethod
    def from_pictures(cls, name: str, caption: str, pictures: Mapping[str, bytes]) -> DrawnFigure:
        """A figure from its pictures.

        Args:
            name: File name without ending.
            caption: What it shows.
            pictures: ``'png'`` and ``'svg'``.

        Returns:
            The figure; if it is drawn onto axes, it is an image.
        """
        return cls(name, caption, partial(_show, pictures["png"]), pictures)


def _show(png: bytes, axes: Any) -> None:
    """A picture as an image on axes of its own size."""
    import io

    import matplotlib.image

    axes.imshow(matplotlib.image.imread(io.BytesIO(png), format="png"))
    axes.set_axis_off()


def picture(figure: Figure, kind: str) -> bytes:
    """Draw a figure in the style of all pictures of the library.

    Args:
        figure: The figure to draw.
        kind: ``'png'`` or ``'svg'``.

    Returns:
        The content of a file.
    """
    from pyterrier_debias.core.plots import rendered

    if isinstance(figure, DrawnFigure):
        check_choice("picture", "kind", kind, figure.pictures)
        return figure.pictures[kind]
    return rendered(_drawn(figure), kind)


def _drawn(figure: Figure) -> mpl.Figure:
    """A figure on axes of its own."""
    from pyterrier_debias.core.plots import new_axes, style

    with style():
        axes = new_axes()
        figure.draw(axes)
    return cast("mpl.Figure", axes.figure)


def following_the_scheme(svg: bytes) -> bytes:
    """A picture whose colours follow the reader's colour scheme: unchanged on a light page and in print, others on a dark page.

    Args:
        svg: What :func:`picture` returned for ``'svg'``.

    Returns:
        The picture; colours that are not the library's are kept.

    Example:
        >>> text = following_the_scheme(b'<svg width="9"><path style="fill: #0072b2"/></svg>').decode()
        >>> text.index("@media") < text.index('<path style="fill: var(--c0072b2)"/>')
        True
    """
    text = re.sub(r"\n\s+", "\n", svg.decode("utf-8"))  # indents are a tenth of it
    text = re.sub(r"(?<=[ :])#[0-9a-f]{6}\b", lambda found: _variable(found[0]), text)
    light = "".join(f"--c{colour[1:]}:{colour};" for colour in DARK)
    dark = "".join(f"--c{colour[1:]}:{other};" for colour, other in DARK.items())
    rules = f"svg{{{light}fill:var(--c000000)}}@media screen and (prefers-color-scheme:dark){{svg{{{dark}}}}}"
    return re.sub(r"(<svg\b[^>]*>)", rf"\1<style>{rules}</style>", text, count=1).encode("utf-8")


def _variable(colour: str) -> str:
    return f"var(--c{colour[1:]})" if colour in DARK else colour
