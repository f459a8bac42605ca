"""Build the documentation into docs/_build; a warning is an error.

The pages are in the package (`pyterrier_debias/pt_docs`), from where PyTerrier's own site takes them. This program copies them
and `coverage.rst` to `docs/_source`, writes one API page for each group of public names, adds both kinds to the tables of
contents, and runs Sphinx. Then it checks what Sphinx does not check: that no page loads anything from the network or links to a
mail address, and that formulas and the sections named by ``related`` lines exist.
"""

import gc
import pkgutil
import re
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

import pyterrier_debias

HERE = Path(__file__).resolve().parent
PAGES = HERE.parent / "pyterrier_debias" / "pt_docs"
SOURCE = HERE / "_source"

#: Page to what is added below it here: pages that PyTerrier's site does not have.
ADDED = {
    "papers": ".. toctree::\n   :maxdepth: 1\n\n   coverage\n",
    "reference": ".. toctree::\n   :maxdepth: 1\n   :caption: API\n   :glob:\n\n   api/*\n",
}

#: Title of an API page, to the modules (below pyterrier_debias) whose public names it shows.
API = {
    "Position": ["position"],
    "Survivorship": ["survivorship"],
    "Gender": ["gender"],
    "Linguistic": ["linguistic"],
    "Pooling": ["pooling"],
    "Source, length and order": [],
    "Rankers": ["rankers"],
    "Training": ["training"],
    "Data": ["data"],
    "Audit": ["report", "core"],
    "Core": [],
}


#: Title of an API page, to the modules that it shows whole, pure functions included.
WHOLE = {
    "Rankers": [f"rankers.{name}" for name in ("published", "long_documents", "heads")],
    "Training": [f"training.{name}" for name in ("losses", "samplers", "weights", "method", "report")],
    "Core": [f"core.{name}" for name in ("frames", "text", "scripts", "statistics", "evaluation", "stage", "files")],
}


#: Title of an API page, to further names that it shows: those that are imported from their own modules.
FURTHER = {
    "Gender": [
        "gender.data.words.read_word_list",
        "gender.data.query_gender.read_gender_queries",
        "gender.data.balanced_pairs.plot_balance",
        "gender.data.balanced_pairs.save_pairs",
        "gender.training.balanced.augment_balanced",
        "gender.training.balanced.choose_ratio",
        "gender.measures.evaluator.GenderCounts",
    ],
    "Pooling": [
        *(f"pooling.formulas.losses.{name}" for name in ("debiased_contrastive", "dynamic_pairwise")),
        "pooling.data.relabel.relabel",
    ],
    "Data": [
        "data.base.TextLoader",
        *(f"data.readers.read_{name}" for name in ("corpus", "topics", "qrels", "run")),
        *(f"data.answers.read_{name}" for name in ("squad", "spans", "qna")),
        "data.irds.IRDSCollection",
    ],
    "Source, length and order": [f"further.{name}Bias" for name in ("source.Source", "length.Length", "order.Order")],
    "Rankers": [
        *(f"rankers.{name}" for name in ("base.Ranker", "base.InMemory", "tk_model.TKConfig", "duo_t5.DuoT5Reranker")),
        "core.spread.Spread",
        "core.pieces.by_query",
    ],
    "Audit": ["core.dataset.Dataset"],
}


def api_page(title: str, modules: list[str]) -> str:
    """The reStructuredText of one API page."""
    names = [n for n, m in pyterrier_debias._PUBLIC.items() if m in modules or m.split(".")[0] in modules]
    lines = [title, "=" * len(title), ""]
    for name in (*names, *FURTHER.get(title, ())):
        value, short = pkgutil.resolve_name(f"pyterrier_debias.{name}"), name.rpartition(".")[2]
        kind = "class" if isinstance(value, type) else "function"
        lines += [short, "-" * len(short), "", f".. auto{kind}:: pyterrier_debias.{name}"]
        # Of TKConfig's base, a class of transformers, nothing is shown.
        inherited = "   :inherited-members: Transformer, ValueError, PreTrainedConfig"
        lines += ["   :members:", inherited, ""] if kind == "class" else [""]
    for module in WHOLE.get(title, ()):
        heading = f"pyterrier_debias.{module}"
        lines += [heading, "-" * len(heading), "", f".. automodule:: {heading}", "   :members:", ""]
    return "\n".join(lines)


#: What a built page must hold: a class leads to the section that its ``related`` line names; the browser alone draws formulas.
HELD = {"api/position.html": r'<div class="related [^>]*>.*?position\.html#positions-of-answers"', "cet.html": "<math"}
#: What no page may hold: ``nDCG@10`` as a mail address, scripts that need the network, and the name of a picture as its text.
NOT_HELD = {
    "mailto:": "an address; write nDCG\\@10",
    r'(?i)<script[^>]+src="http|mathjax': "a script from the network",
    'alt="[^"]*_images/': "a picture without :alt:",
}


def problems(built: Path) -> list[str]:
    """The faults of the pages in a folder, one line each."""
    pages = {path.relative_to(built).as_posix(): path.read_text(encoding="utf-8") for path in sorted(built.rglob("*.html"))}
    lacking = [
        f"{name}: {'lacks ' + pattern if name in pages else 'is not there'}"
        for name, pattern in {"index.html": "", **HELD}.items()
        if not re.search(pattern, pages.get(name, ""), re.DOTALL) or name not in pages
    ]
    return lacking + [
        f"{name}: {what}" for name, text in pages.items() for pattern, what in NOT_HELD.items() if re.search(pattern, text)
    ]


def main() -> int:
    """Copy the pages, write the API pages, run Sphinx, check its pages; returns 0 if nothing is wrong."""
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)  # a third of the time went into looking for garbage among the nodes of all pages
    for folder in (SOURCE, HERE / "_build"):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(PAGES, SOURCE)
    shutil.copy(HERE / "coverage.rst", SOURCE)
    for page, more in ADDED.items():
        path = SOURCE / f"{page}.rst"
        path.write_text(f"{path.read_text(encoding='utf-8')}\n{more}", encoding="utf-8")
    (SOURCE / "api").mkdir()
    for title, modules in API.items():
        (SOURCE / "api" / f"{title.lower().replace(',', '').replace(' ', '-')}.rst").write_text(api_page(title, modules))
    built = HERE / "_build"
    if code := sphinx(["-W", "--keep-going", "-q", "-b", "html", "-c", str(HERE), str(SOURCE), str(built)]):
        return code
    found = problems(built)
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
