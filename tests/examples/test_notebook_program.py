"""The program that renews the outputs of notebooks; what they hold is tested in tests/test_notebooks.py."""

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "notebooks"
CODE = """import sys
print("told", file=sys.stderr)
print("seen")
6 * 7"""


def test_outputs_are_renewed_without_warnings_and_times(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTERRIER_DEBIAS_DATA", "/nowhere/at/all")
    path = tmp_path / "gender.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(CODE)]), path)
    status, told = run("run.py", "gender", "--folder", tmp_path)
    assert status is None and told.out.startswith("gender.ipynb: ")
    (cell,) = nbformat.read(path, as_version=4).cells
    assert [out.get("text") or out["data"]["text/plain"] for out in cell.outputs] == ["seen\n", "42"]
    assert "execution" not in cell.metadata


def test_an_output_that_names_a_folder_of_this_machine_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTERRIER_DEBIAS_DATA", "/nowhere/at/all")
    path = tmp_path / "gender.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("print('/nowhere/at/all/topics.tsv')")]), path)
    before = path.read_bytes()
    try:
        run("run.py", "gender", "--folder", tmp_path)
    except ValueError as error:
        assert "names '/nowhere/at/all'" in str(error)
    else:
        raise AssertionError("it was written")
    assert path.read_bytes() == before
