"""The plot style: distinct colours, labels, files that are written whole."""

import itertools

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from pyterrier_debias.core import plots
from pyterrier_debias.core.errors import InputError

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


def test_colours_start_again():
    assert plots.colour(len(plots.PALETTE)) == plots.colour(0)


def test_style_ends_with_the_block():
    before = mpl.rcParams["axes.spines.top"]
    with plots.style():
        assert mpl.rcParams["axes.spines.top"] is False
    assert mpl.rcParams["axes.spines.top"] == before


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


def test_saving_closes_and_reports_a_place_that_cannot_be_written(tmp_path):
    import matplotlib.pyplot as plt

    (tmp_path / "file").write_text("in the way")
    before = plt.get_fignums()
    with pytest.raises(InputError, match="cannot be written"):
        plots.save(plots.new_axes(2, 2).figure, tmp_path / "file" / "a.png")
    assert plt.get_fignums() == before
