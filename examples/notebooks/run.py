"""Execute the notebooks of this folder, and the quickstart beside it, in their full setting, and keep their outputs.

``python examples/notebooks/run.py`` runs all seven, ``python examples/notebooks/run.py position gender`` the named ones. Each
takes a few minutes of one core. ``PYTERRIER_DEBIAS_DATA`` names the folder of the collections; see the notebooks' second cell.
The extra ``test`` brings what runs notebooks.

What is kept: results, printed text and pictures. What is not: warnings and progress bars, and when and where it ran.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).resolve().parent
NAMES = ["quickstart", "position", "survivorship", "gender", "linguistic", "pooling", "public_rankers"]


def places() -> list[str]:
    """Folders of this machine that no output may name."""
    named = [os.environ.get("PYTERRIER_DEBIAS_DATA", ""), str(Path.home()), str(FOLDER.parent.parent)]
    return [place for place in named if len(place) > 1]


def smaller(png: str) -> str:
    """A picture with at most 64 colours, which halves its size and hardly shows; base64 in, base64 out."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB").quantize(64)
    content = io.BytesIO()
    picture.save(content, format="png", optimize=True)
    return base64.b64encode(content.getvalue()).decode("ascii")


def run(name: str, folder: Path = FOLDER) -> Path:
    """Execute one notebook in place.

    Args:
        name: One of ``NAMES``.
        folder: Where it is; the quickstart lies beside this folder.

    Returns:
        The file.

    Raises:
        ValueError: Where an output names a folder of this machine; the file is left as it was.
    """
    path = (folder.parent if name == "quickstart" else folder) / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    os.environ.pop("MPLBACKEND", None)  # the kernel chooses its own
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=1800, kernel_name="python3", record_timing=False, resources=resources).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
            for out in cell.outputs:
                if "image/png" in out.get("data", {}):
                    out.data["image/png"] = smaller(out.data["image/png"])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = nbformat.from_dict({"kernelspec": kernel, "language_info": {"name": "python"}})
    written = nbformat.writes(notebook)
    if named := [place for place in places() if place in written]:
        raise ValueError(f"{name}: an output names {named[0]!r}")
    path.write_text(written + "\n", encoding="utf-8")
    return path


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = f"which: {', '.join(NAMES)}  [default: all]"
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *NAMES], help=which)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the notebooks are, such as a copy of this folder")
    options = parser.parse_args()
    for name in options.names or NAMES:
        path = run(name, options.folder)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
