"""One style for all pictures of the library.

Seven colours, and a grey, that colour-blind readers can distinguish (Okabe and Ito, "Color Universal Design", 2008), and seven
more for pictures with more systems; fonts that are legible when the picture fills half a page; and axes labelled with quantity,
unit and n. matplotlib is imported when the first picture is drawn.
"""

from __future__ import annotations

import io
import textwrap
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyterrier_debias.core.errors import check_choice, shortened, visible
from pyterrier_debias.core.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.typing import RcKeyType

#: Okabe and Ito's colours, the most distinct first, without yellow, which is too pale for lines on white; also distinguishable in
#: greyscale when used in this order. Darker ones and violets follow for more than seven series.
PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
    "#8A3A00", "#00573F", "#8B3A68", "#806000", "#7D7DC8", "#8C8C8C", "#5B2C91",
)  # fmt: skip

#: Reference lines, such as "no effect".
GREY = "#595959"

#: How many characters stand beside each other in a picture of the usual width; longer lines of text are shortened.
_LINE = 72
#: The same of a legend.
_LEGEND = 54
#: A legend of more entries stands below the axes, where it hides nothing.
_INSIDE = 4

_STYLE: dict[RcKeyType, Any] = {
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.fontsize": 10,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#E0E0E0",
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.0,
    "lines.markersize": 5.5,
    "errorbar.capsize": 3.0,
    "svg.hashsalt": "pyterrier_debias",
    "text.parse_math": False,  # names come from users: a $ in one is not a formula
}

#: Fonts with letters that matplotlib's own font lacks (Chinese, Japanese, Korean, Thai, ...), where one is installed.
_MORE_LETTERS = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans JP", "Noto Sans SC", "Noto Sans KR", "Source Han Sans", "Hiragino Sans",
    "PingFang SC", "Apple SD Gothic Neo", "Yu Gothic", "Microsoft YaHei", "Malgun Gothic", "SimHei", "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei", "Droid Sans Fallback", "Noto Sans Thai", "Noto Sans Devanagari", "Noto Sans Bengali", "Arial Unicode MS",
)  # fmt: skip


#: Whoever changes matplotlib's settings holds it.
_SETTINGS = threading.RLock()


@contextmanager
def style() -> Iterator[None]:
    """Draw in the library's style inside this block, whatever the user's own settings are.

    Only one thread draws at a time, because matplotlib's settings apply to the whole process.

    Example:
        >>> with style():
        ...     axes = new_axes()
        ...     _ = axes.plot([0, 1], [0, 1], color=colour(0))
        >>> close(axes.figure)
    """
    import matplotlib as mpl

    cycle = mpl.cycler(color=PALETTE)  # type: ignore[attr-defined]  # missing from matplotlib's stubs
    with _SETTINGS, mpl.rc_context({"axes.prop_cycle": cycle, "font.family": _fonts(), **_STYLE}):
        try:
            yield
        finally:
            interactive = mpl.is_interactive()
    # A notebook's backend switches this on when the first figure is made: put back, later figures would not be shown.
    mpl.interactive(interactive)


def _fonts() -> list[str]:
    """The user's fonts, and after them those that have further letters."""
    import matplotlib as mpl
    from matplotlib.font_manager import fontManager

    chosen, installed = mpl.rcParams["font.family"], {font.name for font in fontManager.ttflist}
    return [*chosen, *(name for name in _MORE_LETTERS if name in installed and name not in chosen)]


def colour(index: int) -> str:
    """The colour of the series with this number; after the last colour, the first is used again.

    Args:
        index: The number of the series, from 0.

    Returns:
        A colour such as ``'#0072B2'``.
    """
    return PALETTE[index % len(PALETTE)]


def colours(names: Iterable[str], order: Sequence[str] | None = None) -> dict[str, str]:
    """The colour of each series, by its name.

    Args:
        names: The series of one figure.
        order: All series of several figures, so that each has the same colour in all of them; None uses those of this figure.

    Returns:
        The colour of each name.
    """
    return {name: colour(place) for place, name in enumerate(dict.fromkeys(names if order is None else order))}


def new_axes(width: float = 7.0, height: float = 4.2) -> Axes:
    """Axes on a new figure, in the style of the library.

    Args:
        width: Inches.
        height: Inches.

    Returns:
        Matplotlib axes; their figure is ``axes.figure``, to be passed to :func:`save` or :func:`close`.
    """
    import matplotlib.pyplot as plt

    with style():
        return plt.subplots(figsize=(width, height))[1]


def label_axes(
    axes: Axes, *, x: str, y: str, title: str = "", n: int | Sequence[int] | None = None, unit: str = "queries"
) -> None:
    """Label the axes, with the number of units.

    Args:
        axes: Matplotlib axes.
        x: The label of the horizontal axis, with its unit in brackets.
        y: The label of the vertical axis.
        title: What the picture shows; may be empty.
        n: The number of units that the picture is based on, or the number for each system; added to the horizontal label.
        unit: The name of the units.
    """
    axes.set_xlabel(textwrap.fill(x if n is None else f"{x}   [n = {spanned(n)} {unit}]", _LINE))
    axes.set_ylabel(y)
    if title:
        axes.set_title(title, loc="left")


def spanned(counts: int | Sequence[int]) -> str:
    """A number, or the smallest and the largest of several different numbers, as text.

    Args:
        counts: Numbers, such as the queries of each system.

    Returns:
        Text for a label.

    Example:
        >>> spanned(1200), spanned([90, 90]), spanned([90, 87, 88])
        ('1,200', '90', '87 to 90')
    """
    least, most = (counts, counts) if isinstance(counts, int) else (min(counts), max(counts))
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def name_ticks(axes: Axes, names: Sequence[str]) -> None:
    """Put names at 0, 1, 2, ... of the horizontal axis, in as many lines as they need in order not to overlap, or at an angle.

    Args:
        axes: Matplotlib axes.
        names: Names, such as those of systems.

    Example:
        >>> axes = new_axes()
        >>> name_ticks(axes, ["BM25", "BM25 >> cross-encoder/ms-marco-MiniLM-L6-v2"])
        >>> axes.get_xticklabels()[1].get_text()
        'BM25 >> cross-encoder/ms-marco-\\nMiniLM-L6-v2'
        >>> close(axes.figure)
    """
    width, most = max(6, 66 // max(len(names), 1) - 1), 60
    angle: dict[str, Any] = {}
    shown = [visible(name) for name in names]
    if any(len(line) > width for name in shown for line in textwrap.wrap(name, width, break_long_words=False)):
        # Side by side, names would break inside words: they are put at an angle, in two lines if eight of them have the space.
        width, most = 24, 48 if len(names) <= 8 else 24
        angle = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    lines = ["\n".join(textwrap.wrap(shortened(name, most), width)) for name in shown]
    axes.set_xticks(range(len(names)), lines, **angle)


def legend_label(name: str, more: str = "") -> str:
    """A name that a legend shows: matplotlib leaves out names that begin with an underscore.

    Args:
        name: A name, such as that of a system.
        more: What follows the name; a long name is shortened so that this is not.

    Returns:
        Both, with a zero-width character before a leading underscore.

    Example:
        >>> legend_label("BM25"), legend_label("_mine")
        ('BM25', '\\u200b_mine')
        >>> legend_label("an encoder trained on rotated passages, seed 7", more=": MATS 0.123 (sd 0.004)")
        'an encoder trained ... seed 7: MATS 0.123 (sd 0.004)'
    """
    name = name if len(name) + len(more) <= _LEGEND or not more else shortened(name, _LEGEND - len(more) - 6)
    return f"\u200b{name}{more}" if name.startswith("_") else f"{name}{more}"


def ends(value: Any, low: Any, high: Any) -> np.ndarray:
    """Lengths of error bars, for ``xerr`` and ``yerr``.

    Args:
        value: Figures, a number or shape [n].
        low: Lower ends of their intervals, in the same shape; NaN if there is none.
        high: Upper ends of their intervals.

    Returns:
        Shape [2, n]; 0 where an interval is not defined, or does not contain the figure.

    Example:
        >>> ends([0.5, 0.2], [0.4, float("nan")], [0.7, float("nan")]).round(1).tolist()
        [[0.1, 0.0], [0.2, 0.0]]
    """
    value, low, high = (np.atleast_1d(np.asarray(one, dtype=float)) for one in (value, low, high))
    return np.nan_to_num(np.clip([value - low, high - value], 0, None))


def rendered(figure: Figure | SubFigure, kind: str = "png", *, dpi: int = 150) -> bytes:
    """The content of a file with a figure, as large as its texts need; the figure is closed. Equal figures give equal bytes.

    Args:
        figure: The figure.
        kind: ``'png'``, ``'svg'`` or ``'pdf'``.
        dpi: Dots per inch, for formats that have them.

    Returns:
        The file's content.
    """
    return rendered_as(figure, (kind,), dpi=dpi)[kind]


def rendered_as(figure: Figure | SubFigure, kinds: Iterable[str], *, dpi: int = 150) -> dict[str, bytes]:
    """A figure in several formats, the first as from :func:`rendered`; the figure is closed.

    Args:
        figure: The figure.
        kinds: See :func:`rendered`.
        dpi: See :func:`rendered`.

    Returns:
        The content of a file for each format.
    """
    root = figure.get_figure(root=True)
    found: dict[str, bytes] = {}
    for kind in kinds:
        check_choice("rendered", "kind", kind, root.canvas.get_supported_filetypes())
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        content = io.BytesIO()
        if not found:
            _make_visible(figure)
            _move_long_legends(figure)
        with style():
            root.savefig(content, format=kind, dpi=dpi, metadata=metadata, bbox_inches="tight")
        found[kind] = content.getvalue()
    close(figure)
    return found


def _make_visible(figure: Figure | SubFigure) -> None:
    """Replace what no picture can show in its texts: control characters, lines longer than it is wide; line ends are meant."""
    from matplotlib.category import StrCategoryFormatter
    from matplotlib.legend import Legend
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter, Formatter, FuncFormatter

    def lines(text: str, longest: int = _LINE) -> str:
        return "\n".join(visible(shortened(line, longest) if len(line) > longest else line) for line in text.split("\n"))

    def visible_ticks(formatter: Formatter) -> Formatter:
        return FuncFormatter(lambda value, place: lines(formatter(value, place)))

    legends = {text for legend in figure.findobj(Legend) for text in legend.get_texts()}
    for text in figure.findobj(Text):
        text.set_text(lines(text.get_text(), _LEGEND if text in legends else _LINE))
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            formatter = axis.get_major_formatter()
            if isinstance(formatter, (FixedFormatter, FuncFormatter, StrCategoryFormatter)):  # others write numbers
                axis.set_major_formatter(visible_ticks(formatter))


def _move_long_legends(figure: Figure | SubFigure) -> None:
    """Put legends of many entries below the axes, unless they have a place of their own; the figure grows by their height."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    root = figure.get_figure(root=True)
    for axes in root.axes if isinstance(root.get_layout_engine(), ConstrainedLayoutEngine) else []:
        legend, handles = axes.get_legend(), axes.get_legend_handles_labels()[0]
        texts = [] if legend is None else [text.get_text() for text in legend.get_texts()]
        if legend is None or len(texts) <= _INSIDE or len(handles) != len(texts) or legend.get_bbox_to_anchor() is not axes.bbox:
            continue
        columns, title = 1 + (max(map(len, texts)) < _LINE // 2 - 6), legend.get_title().get_text()
        legend.remove()
        with style():
            around = axes.get_figure(root=False) or root
            below = around.legend(handles, texts, loc="outside lower center", ncols=columns, title=title)
        root.set_figheight(root.get_figheight() + below.get_window_extent().height / root.dpi)


def save(figure: Figure | SubFigure, path: str | Path, *, dpi: int = 150) -> None:
    """Write a figure, completely or not at all, and close it. Equal figures give equal bytes; a PNG has at most 256 colours.

    Args:
        figure: The figure.
        path: The file; its ending determines the format (``.png``, ``.svg``, ``.pdf``).
        dpi: Dots per inch, for formats that have them.

    Raises:
        InputError: If the file cannot be written.
    """
    path = Path(path).expanduser()
    kind = path.suffix.lstrip(".").lower() or "png"
    content = rendered(figure, kind, dpi=dpi)
    write_whole(path, _of_few_colours(content, dpi) if kind == "png" else content)


def _of_few_colours(png: bytes, dpi: int) -> bytes:
    """A PNG with a palette of at most 256 colours: a third of the size, and no pixel visibly different.

    The edges of letters and the overlaps of shades have thousands of colours, few of which can be told apart. Dithering would
    blur the letters.
    """
    from PIL import Image  # matplotlib needs it too

    whole, content = Image.open(io.BytesIO(png)).convert("RGB"), io.BytesIO()
    few = whole.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    few.save(content, "png", optimize=True, dpi=(dpi, dpi))
    return content.getvalue()


def close(figure: Figure | SubFigure) -> None:
    """Close a figure that is no longer needed."""
    import matplotlib.pyplot as plt

    plt.close(figure.get_figure(root=True))
