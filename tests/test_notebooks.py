"""The notebooks run from top to bottom, in this process and on small collections; what is committed of them may be shared."""

import ast
import html
import os
import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pytest

import pyterrier_debias
from pyterrier_debias import PlantedCollection, open_dataset
from pyterrier_debias.report.treatments import TREATMENTS
from tests import tiny_models

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "examples" / "notebooks"

SMALL = "planted/seed=1,topics=14,passages=160,depth=16"
#: Each notebook's parameters in the tiny setting. ``MODEL`` is the folder of a random encoder.
TINY = {
    "position": {"collection": SMALL, "split": None, "marked": SMALL, "model": "MODEL", "queries": 3, "depth": 6},
    "survivorship": {"shown": SMALL, "collection": SMALL, "split": None, "fuller": "full", "least": 2, "model": "MODEL"},
    "gender": {"collection": SMALL, "model": "MODEL", "queries": 6, "depth": 6},
    "linguistic": {"collection": SMALL, "model": "MODEL", "queries": 8, "depth": 4},
    "pooling": {"collection": SMALL, "split": None, "published": [], "model": "MODEL", "queries": 6, "depth": 12, "pool": 3},
}
#: The same of the notebook that is about no single bias.
TINY_PUBLIC = {"collection": SMALL, "split": None, "model": "MODEL", "queries": 8, "depth": 12}
#: What each is about: a part of the title of its paper, or of its papers' names.
PAPERS = {
    "position": "Mitigating the Position Bias of Transformer Models in Passage Re-Ranking",
    "survivorship": "Survivorship Bias in IR Datasets",
    "gender": "De-biasing Relevance Judgements for Fair Ranking",
    "linguistic": "EqualizeIR",
    "pooling": "Hard Negatives or False Negatives",
    "public_rankers": "Hofstätter et al., ECIR 2021",
}


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def run(path: Path, parameters: dict[str, Any]) -> tuple[list[Any], int]:
    """Execute a notebook's cells one after the other in one namespace, without a kernel.

    Args:
        path: The notebook.
        parameters: What takes the place of the values that its cell with the tag ``parameters`` sets.

    Returns:
        What each code cell shows (None where its last line is no expression), and how many pictures were drawn.
    """
    shown: list[Any] = []
    names: dict[str, Any] = {"__name__": "__main__", "display": shown.append}
    plt.close("all")
    for number, cell in enumerate(cell for cell in read(path).cells if cell.cell_type == "code"):
        tree = ast.parse(cell.source)
        where = f"<{path.name}, code cell {number}>"
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, where, "exec"), names)
        shown.append(None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), names))
        if "parameters" in cell.metadata.get("tags", []):
            assert set(parameters) <= set(names), "a parameter that the notebook does not have"
            names.update(parameters)
    pictures = len(plt.get_fignums())
    plt.close("all")
    return shown, pictures


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny_models.build_sentence_transformer(tmp_path_factory.mktemp("tiny") / "model"))


@pytest.mark.usefixtures("pictures_small")
@pytest.mark.parametrize("name", TINY)
def test_a_notebook_runs_and_ends_in_the_display_of_an_audit(name, model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTERRIER_DEBIAS_DATA", raising=False)
    parameters = {key: model if value == "MODEL" else value for key, value in TINY[name].items()}
    shown, pictures = run(FOLDER / f"{name}.ipynb", parameters)
    assert pictures
    result = shown[-1]
    assert result._repr_html_().startswith("<iframe")
    assert set(result.findings["bias"]) == {name}
    assert not len(result.failed)
    assert "?" in capsys.readouterr().out  # the question that the verdict answers


@pytest.mark.usefixtures("pictures_small")
def test_the_notebook_on_public_rankers_puts_ones_own_beside_them(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTERRIER_DEBIAS_DATA", raising=False)
    shown, pictures = run(FOLDER / "public_rankers.ipynb", {**TINY_PUBLIC, "model": model})
    assert pictures == 2
    overview = next(one for one in shown if one is not None and "nDCG@10" in one)
    assert {"RepLLaMA", "monoT5"} & set(overview.index) == {"RepLLaMA"} and overview["nDCG@10"].is_monotonic_decreasing
    own = shown[-1].reset_index()
    assert set(own["bias"]) == {"gender", "linguistic", "pooling", "length"} and set(own["system"]) <= {"BM25", "my ranker"}
    assert "?" in capsys.readouterr().out


def test_quickstart_notebook_runs(monkeypatch, capsys):
    """On fewer topics than it has, which changes its figures and nothing else."""

    def fewer(**options):
        return PlantedCollection(**{**options, "topics": 16, "passages": 200})

    monkeypatch.setattr(pyterrier_debias, "PlantedCollection", fewer)
    shown, pictures = run(ROOT / "examples" / "quickstart.ipynb", {})
    assert pictures
    assert any("nDCG@10" in str(value) for value in shown)
    assert "POSITION" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------- what is committed

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_is_one_for_each_bias_and_one_of_public_rankers():
    assert {path.stem for path in NOTEBOOKS} == {*TINY, "public_rankers"} == set(PAPERS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_with_its_outputs(path):
    notebook = read(path)
    assert path.stat().st_size < 300_000
    first = notebook.cells[0].source
    assert first.split("\n")[0].endswith("?")
    assert PAPERS[path.stem] in first
    told = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert re.findall(r"\d*[.,]\d+|\d+ ?%", told) == [], "figures stand in outputs, which are renewed"
    for number, cell in enumerate(cell for cell in notebook.cells if cell.cell_type == "code"):
        assert cell.execution_count == number + 1, "run examples/notebooks/run.py"
        assert set(cell.metadata) <= {"tags"}
        assert not [out for out in cell.outputs if out.output_type == "error" or out.get("name") == "stderr"]
        if isinstance(ast.parse(cell.source).body[-1], ast.Expr):
            assert cell.outputs, cell.source
    last = notebook.cells[-1].outputs[-1]["data"]["text/html"]
    assert ("<iframe" in last) == (path.stem in TINY)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


@pytest.mark.parametrize("path", [*NOTEBOOKS, ROOT / "examples" / "quickstart.ipynb"], ids=lambda path: path.stem)
def test_a_notebook_shows_the_treatments_that_reports_recommend_now(path):
    outputs = [out for cell in read(path).cells for out in cell.get("outputs", [])]
    told = " ".join(" ".join(out.text for out in outputs if "text" in out).split())
    assert "Unexpected exception" not in told
    for own in TREATMENTS.values():
        if any(one.name in told for one in own):
            assert [one.name for one in own if f"-> {one.name} " not in told or one.sentence not in told] == [], "renew it"
    # What is filled in differs; what stands around it is what is printed now.
    for code in (one.code for own in TREATMENTS.values() for one in own if one.sentence in told):
        fixed = [part for part in re.split(r"\{[a-z]+\}|\{\{|\}\}|\n", code) if len(part) > 9]
        assert [part for part in fixed if part.strip() not in told] == [], "renew it"


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def words_of_notebook(path: Path) -> list[str]:
    """All words of a notebook, those of results included; pictures are left out."""
    found = []
    for cell in read(path).cells:
        outputs = cell.get("outputs", [])
        results = [text for out in outputs for kind, text in out.get("data", {}).items() if kind.startswith("text/")]
        found += [cell.source, *results, *(out.text for out in outputs if "text" in out)]
    text = html.unescape(html.unescape("\n".join(found)))
    return words_of(re.sub(r"base64,[\w+/=]+", " ", text))


def runs_of(words: list[str], n: int, step: int = 1) -> list[str]:
    """All runs of n words, or those that begin at every step-th word."""
    return [" ".join(words[i : i + n]) for i in range(0, len(words) - n + 1, step)]


def quoted(words: list[str], queries: list[str], passages: list[str]) -> list[str]:
    """Queries of three words and more that stand in a text, and what it quotes of passages: ten words and more."""
    whole, eight = f" {' '.join(words)} ", set(runs_of(words, 8))
    asked = [" ".join(words_of(query)) for query in queries]
    said = [part for passage in passages for part in runs_of(words_of(passage), 8, 3) if part in eight]
    return [query for query in asked if query.count(" ") >= 2 and f" {query} " in whole] + said


def test_no_notebook_quotes_a_collection_that_may_not_be_shared(shared_data):
    names = ["msmarco_trec_dl", "msmarco_dev600", "msmarco_qna", "msmarco_human_spans"]
    collections = [open_dataset(shared_data / name) for name in names]
    queries = [query for one in collections for query in one.get_topics()["query"]]
    passages = [text for one in collections for text in one.corpus["text"]]
    words = [word for path in NOTEBOOKS for word in words_of_notebook(path)]
    assert quoted(words, queries, passages) == []
    assert quoted([*words, *words_of(passages[7])], [], passages[:9])  # it would have been found
    assert quoted([*words, *words_of(queries[0])], queries, [])


def test_no_notebook_names_a_folder_of_somebodys_machine():
    here = [str(ROOT), str(Path.home()), os.environ.get("PYTERRIER_DEBIAS_DATA") or str(ROOT)]
    for path in NOTEBOOKS:
        written = path.read_text(encoding="utf-8")
        assert not [place for place in here if place in written], path.name
        assert re.findall(r"(?:/home|/root|/Users|/tmp|/mnt)/|[A-Z]:\\\\", written) == [], path.name
