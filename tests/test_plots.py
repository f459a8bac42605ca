"""The plot style: distinct colours, labels, files that are written whole."""

import importlib
import inspect
import io
import itertools
import pkgutil
import re
import threading
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.legend import Legend
from PIL import Image

import pyterrier_debias
from pyterrier_debias.core import plots
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.report.pictures import DARK

# Viénot, Brettel and Mollon (1999): what a protanope and a deuteranope see, in linear RGB.
_SEEN = {
    "protan": np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
    "deutan": np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
}


def linear(colour):
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("eye", _SEEN)
def test_first_four_colours_differ_for_colour_blind_readers(eye):
    seen = [_SEEN[eye] @ linear(plots.colour(i)) for i in range(4)]
    assert min(np.abs(a - b).max() for a, b in itertools.combinations(seen, 2)) > 0.08


def test_figures_stay_interactive_where_the_first_one_switched_that_on():
    """As the backend of notebooks does: there, all figures after the first would not be shown otherwise."""
    before = mpl.is_interactive()
    try:
        mpl.interactive(False)
        with plots.style():
            mpl.interactive(True)
        assert mpl.is_interactive() and mpl.rcParams["font.size"] == mpl.rcParamsDefault["font.size"]
        with plots.style():
            mpl.interactive(False)
        assert not mpl.is_interactive()
    finally:
        mpl.interactive(before)


def test_colours_start_again():
    assert plots.colour(len(plots.PALETTE)) == plots.colour(0)


def test_a_dozen_series_have_different_colours_on_light_and_dark_pages():
    ground, series = DARK["#ffffff"], [plots.colour(i) for i in range(12)]
    for shades, page in ((series, "#ffffff"), ([DARK[one.lower()] for one in series], ground)):
        seen = [np.array(to_rgb(one)) for one in (*shades, page)]
        assert min(np.abs(a - b).max() for a, b in itertools.combinations(seen, 2)) > 0.12, page


def test_a_series_has_one_colour_in_figures_that_leave_others_out():
    assert plots.colours(["b", "c"], ["a", "b", "c"]) == {"a": plots.colour(0), "b": plots.colour(1), "c": plots.colour(2)}
    assert plots.colours(["b", "c", "b"]) == {"b": plots.colour(0), "c": plots.colour(1)}


def test_style_ends_with_the_block():
    before = mpl.rcParams["axes.spines.top"]
    with plots.style():
        assert mpl.rcParams["axes.spines.top"] is False
    assert mpl.rcParams["axes.spines.top"] == before


def test_letters_that_the_usual_font_lacks_come_from_another_one(monkeypatch):
    """No warning about a missing glyph, which would be an error here."""
    letter = "\u20dd"
    monkeypatch.setattr(plots, "_MORE_LETTERS", ("A font that nobody has", "STIXGeneral"))
    with mpl.rc_context({"font.family": ["DejaVu Sans"]}), plots.style():
        assert mpl.rcParams["font.family"] == ["DejaVu Sans", "STIXGeneral"]
        axes = plots.new_axes()
        axes.set_title(f"a system {letter}")
    plots.rendered(axes.figure)
    monkeypatch.setattr(plots, "_MORE_LETTERS", ())
    with mpl.rc_context({"font.family": ["DejaVu Sans"]}), plots.style():
        axes = plots.new_axes()
        axes.set_title(f"a system {letter}")
    with pytest.warns(UserWarning, match="missing from font"):
        plots.rendered(axes.figure)


def test_one_thread_at_a_time_draws_in_the_style():
    before, entered = mpl.rcParams["axes.spines.top"], threading.Event()

    def draw():
        with plots.style():
            entered.set()

    other = threading.Thread(target=draw)
    with plots.style():
        other.start()
        assert not entered.wait(0.1)
    other.join()
    assert entered.is_set() and mpl.rcParams["axes.spines.top"] == before


def test_labels_carry_unit_and_n():
    axes = plots.new_axes()
    plots.label_axes(axes, x="rank", y="nDCG@10", title="t", n=1200)
    assert axes.get_xlabel() == "rank   [n = 1,200 queries]"
    assert (axes.get_ylabel(), axes.get_title(loc="left")) == ("nDCG@10", "t")
    plots.close(axes.figure)


@pytest.mark.parametrize("kind, head", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_same_figure_same_bytes(tmp_path, kind, head):
    for name in ("a", "b"):
        axes = plots.new_axes(2, 2)
        axes.plot([0, 1], [0, 1])
        plots.save(axes.figure, tmp_path / f"{name}.{kind}")
    content = (tmp_path / f"a.{kind}").read_bytes()
    assert content.startswith(head)
    assert content == (tmp_path / f"b.{kind}").read_bytes()


def test_few_colours_change_no_pixel_visibly(tmp_path):
    """Of a picture with letters, lines and overlapping shades; its size in dots and per inch stays."""
    axes = plots.new_axes(4, 3)
    for step, colour in enumerate(plots.PALETTE):
        axes.fill_between([0, 1], [0, step], [1, 2 * step], color=colour, alpha=0.2)
        axes.plot([0, 1], [step, 2], color=colour, label=f"system {step}" if step < 4 else None)
    axes.legend()
    whole = io.BytesIO()
    with plots.style():
        axes.figure.savefig(whole, format="png", dpi=150, bbox_inches="tight")
    plots.save(axes.figure, tmp_path / "few.png")
    with Image.open(whole) as many, Image.open(tmp_path / "few.png") as few:
        before, after = (np.asarray(one.convert("RGB"), dtype=int) for one in (many, few))
        assert few.info["dpi"] == pytest.approx(many.info["dpi"])
    assert len(np.unique(before.reshape(-1, 3), axis=0)) > 1000 and len(np.unique(after.reshape(-1, 3), axis=0)) <= 256
    assert before.shape == after.shape and np.abs(before - after).max() <= 24
    assert (after[(before == 255).all(axis=-1)] == 255).all()
    assert (tmp_path / "few.png").stat().st_size < len(whole.getvalue()) / 2


def test_pictures_of_the_documentation_are_small():
    folder = Path(pyterrier_debias.__file__).parent / "pt_docs"
    pictures = {path.name: path.stat().st_size for path in folder.glob("*.png")}
    assert len(pictures) > 15 and {name: size for name, size in pictures.items() if size > 100_000} == {}


def test_saving_closes_and_reports_a_place_that_cannot_be_written(tmp_path):
    import matplotlib.pyplot as plt

    (tmp_path / "file").write_text("in the way")
    before = plt.get_fignums()
    with pytest.raises(InputError, match="cannot be written"):
        plots.save(plots.new_axes(2, 2).figure, tmp_path / "file" / "a.png")
    assert plt.get_fignums() == before


def plot_functions():
    """Every function and method of the package that is called plot or plot_ something, by name."""
    found = {}
    for name in (module.name for module in pkgutil.walk_packages(pyterrier_debias.__path__, "pyterrier_debias.")):
        if "terrier_plugin" in name or name.endswith("__main__"):
            continue
        module = importlib.import_module(name)
        owners = [module, *(one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == name)]
        for owner in owners:
            for key, one in vars(owner).items():
                if re.match(r"plot(_|$)", key) and inspect.isfunction(one) and one.__module__ == name:
                    found[f"{name}.{one.__qualname__}"] = one
    return found


def test_every_plot_function_takes_ax_and_returns_axes():
    functions = plot_functions()
    assert len(functions) >= 15 and "pyterrier_debias.report.pareto.plot_pareto" in functions
    for name, function in functions.items():
        signature = inspect.signature(function)
        optional = [p for p in signature.parameters.values() if p.default is not p.empty]
        assert (optional[0].name, optional[0].default) == ("ax", None), name
        assert all(p.kind is p.KEYWORD_ONLY for p in optional[1:]), name
        assert signature.return_annotation == "Axes", name
        assert "\n    ax: " in inspect.cleandoc(function.__doc__), name


LONG = [f"BM25 >> cross-encoder/ms-marco-MiniLM-L6-v2 rotated {i}" for i in range(4)]


def test_names_of_systems_stand_apart():
    axes = plots.new_axes()
    with plots.style():
        plots.name_ticks(axes, LONG)
        axes.set_xlim(-0.6, len(LONG) - 0.4)
        axes.figure.canvas.draw()
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    plots.close(axes.figure)
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


@pytest.mark.parametrize("systems", [8, 20])
def test_names_of_many_systems_are_whole_and_stand_apart(systems):
    names = ["BM25", "text-embedding-ada-002", "SPLADE++ CoCondenser", *(f"ms-marco-MiniLM-{i}" for i in range(systems - 3))]
    axes = plots.new_axes()
    with plots.style():
        plots.name_ticks(axes, names)
        axes.set_xlim(-0.6, systems - 0.4)
        axes.figure.canvas.draw()
        labels = axes.get_xticklabels()
        step = axes.transData.transform([[1, 0]]) - axes.transData.transform([[0, 0]])
        angles = {label.get_rotation() for label in labels}
        plt.setp(labels, rotation=0)
        heights = [label.get_window_extent().height for label in labels]
    assert [label.get_text() for label in labels] == names
    assert angles == {30} and max(heights) < step[0, 0] * np.sin(np.radians(30))
    plots.close(axes.figure)


@pytest.mark.parametrize("name", ["BM25", "_mine", "__"])
def test_legends_leave_no_name_out(name):
    axes = plots.new_axes()
    axes.plot([0, 1], [0, 1], label=plots.legend_label(name))
    assert [text.get_text().lstrip("\u200b") for text in axes.legend().get_texts()] == [name]
    plots.close(axes.figure)


@pytest.mark.parametrize("name", ["{}", "BM25 >> cross-encoder/ms-marco-MiniLM-L6-v{}"], ids=["short", "long"])
def test_a_legend_of_many_systems_hides_nothing(name):
    """In a picture of eight systems, a legend inside the axes covers intervals and points."""
    names = [name.format(number) for number in range(8)]
    axes = plots.new_axes()
    with plots.style():
        for place, label in enumerate(names):
            axes.errorbar([0, 1], [place, place], yerr=0.5, fmt="o-", color=plots.colour(place), label=label)
        axes.legend(title="systems")
    figure, height = axes.figure, axes.get_window_extent().height
    content = plots.rendered(figure, dpi=50)
    legends = figure.findobj(Legend)
    assert [text.get_text() for text in legends[0].get_texts()] == names and len(legends) == 1
    assert legends[0].get_title().get_text() == "systems"
    assert legends[0].get_window_extent().y1 < axes.get_tightbbox().y0
    assert axes.get_window_extent().height > 0.9 * height
    assert plt.imread(io.BytesIO(content)).shape[0] > 50 * 4.2


def test_a_legend_of_few_systems_stays_in_the_axes():
    axes = plots.new_axes()
    with plots.style():
        for place in range(4):
            axes.plot([0, 1], [place, place], label=str(place))
        legend = axes.legend()
    plots.rendered(axes.figure, dpi=50)
    assert axes.get_legend() is legend


@pytest.mark.parametrize("name", ["BM25", LONG[0], "x" * 500], ids=["short", "long", "longest"])
def test_nothing_in_a_picture_is_cut(name):
    axes = plots.new_axes()
    with plots.style():
        axes.plot([0, 1], [0, 1], label=name)
        axes.legend()
        plots.name_ticks(axes, [name, name])
        plots.label_axes(axes, x=f"size of the bias: |slope of nDCG@10, {name}|", y="mean nDCG@10", title=name, n=50)
    pixels = plt.imread(io.BytesIO(plots.rendered(axes.figure, dpi=50)))[..., :3]
    border = [pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]
    assert all((side == 1).all() for side in border) and (pixels < 0.5).any()
    assert pixels.shape[1] < 1200
