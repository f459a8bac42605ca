"""Execute the notebooks of this folder, and the quickstart in the folder above, in their full setting, and store their outputs.

``python examples/notebooks/run.py`` runs all seven; ``python examples/notebooks/run.py position gender`` runs these two. Each
takes a few minutes on one core. ``PYTERRIER_DEBIAS_DATA`` names the folder of the collections; see the second cell of each
notebook. The extra ``test`` installs what is needed to run notebooks.

Results, printed text and pictures are stored. Warnings, progress bars, and the time and place of the run are not.
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
    """A picture reduced to at most 64 colours: half the size, with hardly a visible difference. Both are in base64."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB").quantize(64)
    content = io.BytesIO()
    picture.save(content, format="png", optimize=True)
    return base64.b64encode(content.getvalue()).decode("ascii")


def run(name: str, folder: Path = FOLDER) -> Path:
    """Execute one notebook in place.

    Args:
        name: One of ``NAMES``.
        folder: Its folder; the quickstart is in the folder above this one.

    Returns:
        The file.

    Raises:
        ValueError: If an output names a folder of this machine. The file is then not changed.
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
    """Run the notebooks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = f"notebooks to run: {', '.join(NAMES)} (default: all)"
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *NAMES], help=which)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder with the notebooks, such as a copy of this one")
    options = parser.parse_args()
    for name in options.names or NAMES:
        path = run(name, options.folder)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
