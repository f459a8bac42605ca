"""Every benchmark starts and ends, at its smallest setting; its figures are not looked at here."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "benchmarks"

#: Options of all programs that simulate collections.
_CALIBRATING = "--seeds 2 --topics 12 --workers 1 --out {out}"
#: Program to its smallest setting; ``{out}`` is a folder, ``{queries}`` and ``{passages}`` files, ``{data}`` real collections.
SETTINGS = {
    "calibration": "--collections 2 --power-collections 1 --topics 12 --power-topics 12 --depth 10 --deep 10 --rotations 1 "
    "--draws 19 --workers 1 --out {out}",
    "cet": "--examples 2 --words 8 --rounds 1",
    "complexity": "--queries small={queries} --out {out}",
    "damage": "--files 7",
    "faults": "--kills 1",
    "fuzz": "--calls 40 --only ^R",
    "gender": "--passages {passages} --times 1 --queries 2 --repeat 1",
    "gender_calibration": f"{_CALIBRATING} --strengths 1.0 --depth 10 --draws 19",
    "import_time": "--rounds 1",
    "linguistic_calibration": f"{_CALIBRATING} --strengths 1.0 --depth 10 --draws 19",
    "matching": "--first 40 --second 60 --columns 3 --sample 10",
    "mats": "--passages 20 --dimensions 8 --seconds 0.05 --spread-up-to 20",
    "mutation": "pyterrier_debias/gender/formulas/arab.py --sample 0",
    "pooling_calibration": f"{_CALIBRATING} --strengths 0.7 --depth 10",
    "position_calibration": f"{_CALIBRATING} --strengths 1.0 --power-seeds 1 --depth 8",
    "real_nulls": "--data {data} --collections msmarco_trec_dl --nulls 2 --queries 20 --draws 99 --workers 1 --out {out}",
    "rotation": "--passages 200 --words 20 --rounds 1",
    "scoring": "--data {data}/msmarco_trec_dl --pairs 4 --max-length 32 --repeats 1 --groups cross-encoder",
    "survivorship_calibration": f"{_CALIBRATING} --strengths 0.5 --draws 19",
    "tk": "--queries 1 --depth 2 --words 8 --rounds 1",
    "unjudged_treatments": "--dataset {data}/msmarco_trec_dl --splits dl19 --out {out}",
}
#: Started by tests/terrier/test_queries.py, which has Java.
OVER_TERRIER = {"terrier_queries"}


def test_every_benchmark_is_started():
    programs = {path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text()}
    assert programs == {*SETTINGS, *OVER_TERRIER}


@pytest.mark.parametrize("name", SETTINGS)
def test_it_runs(name, request, tmp_path, monkeypatch, capsys):
    files = {"out": tmp_path / "out", "queries": tmp_path / "queries.tsv", "passages": tmp_path / "passages.tsv"}
    files["queries"].write_text("1\twho built the old mill near the river\n2\twhy is the sky blue at noon\n")
    files["passages"].write_text("1\tHe met her and his brother.\n2\tRain fell on the hills.\n")
    if "{data}" in SETTINGS[name]:
        files["data"] = request.getfixturevalue("shared_data")
    monkeypatch.setattr(sys, "argv", [str(FOLDER / f"{name}.py"), *SETTINGS[name].format(**files).split()])
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(tmp_path)
    try:
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    except SystemExit as end:
        assert not end.code
    assert capsys.readouterr().out.strip()
