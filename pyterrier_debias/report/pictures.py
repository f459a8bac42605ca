"""Figures as pictures: drawn when somebody looks, or drawn before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pyterrier_debias.core.bias import Figure
from pyterrier_debias.core.errors import check_choice

if TYPE_CHECKING:
    from matplotlib import figure as mpl


@dataclass(frozen=True)
class DrawnFigure(Figure):
    """A figure that was drawn before.

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
        return cls.from_pictures(figure.name, figure.caption, {kind: picture(figure, kind) for kind in ("png", "svg")})

    @classmethod
    def from_pictures(cls, name: str, caption: str, pictures: Mapping[str, bytes]) -> DrawnFigure:
        """A figure from its pictures.

        Args:
            name: File name without ending.
            caption: What it shows.
            pictures: ``'png'`` and ``'svg'``.

        Returns:
            The figure; drawn onto axes it is an image.
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
        figure: What to draw.
        kind: ``'png'`` or ``'svg'``.

    Returns:
        The content of a file.
    """
    from pyterrier_debias.core.plots import new_axes, rendered, style

    if isinstance(figure, DrawnFigure):
        check_choice("picture", "kind", kind, figure.pictures)
        return figure.pictures[kind]

    with style():
        axes = new_axes()
        figure.draw(axes)
    return rendered(cast("mpl.Figure", axes.figure), kind)
